"""One HTML page a learner, in English or Chinese, without scripts or anything from the network."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from memstrat.checks.texts import RULES, Text, say
from memstrat.grading.rubric import Rubric

TITLE = Text("Feedback for {learner}", "{learner} 的反馈")
POINTS = Text("{points} of {maximum} points", "{points} / {maximum} 分")
EXERCISE, STATUS, EARNED, CASES = (Text("exercise", "练习"), Text("result", "结果"), Text("points", "得分"),
                                   Text("right answers (visible, random, hidden)", "正确用例（可见、随机、隐藏）"))
UNREADABLE = Text("This submission could not be read: {reason}.", "无法读取此提交：{reason}。")
HIDDEN = Text("Found by a hidden case, whose content is not shown.", "由隐藏用例发现，其内容不公开。")
FOUND_BY = Text("Case: {case}", "用例：{case}")
WENT_IN, CAME_OUT, DIFFERS = Text("What went in", "输入"), Text("What came out", "输出"), Text("Differs at", "差异位置")
SEEDS = Text("Random cases are those of release {release}; memstrat check-submission asks such cases too.",
             "随机用例由发布版本 {release} 决定；memstrat check-submission 也会使用同类用例。")
AN_ERROR = Text("an exception", "异常")
RAN = Text("The notebook ran: {ok} of {total} cells without an error.",
           "笔记本执行：{total} 个单元格中 {ok} 个无错误。")
STATUSES = {
    "passed": Text("passed", "通过"), "partial": Text("partly right", "部分正确"),
    "wrong": Text("not right yet", "尚不正确"), "not_finished": Text("not done yet", "尚未完成"),
    "missing": Text("no such cell in the notebook", "笔记本中没有该单元格"),
    "not_loaded": Text("the cell does not define the function", "单元格未能定义该函数"),
    "not_scored": Text("could not be scored; your instructor has been told", "未能评分，教师会收到通知"),
}
_CODE = re.compile("`([^`]+)`")
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}
table{border-collapse:collapse}td,th{border:1px solid #999;padding:.3rem .7rem;text-align:left}
pre{background:#f4f4f4;padding:.7rem;overflow:auto;white-space:pre-wrap}td:nth-child(3){white-space:nowrap}h3{margin-bottom:.2rem}"""


def page(row: dict[str, Any], content: dict[str, Any], rubric: Rubric, language: str) -> str:
    """The page of one learner. Every text of theirs is escaped."""
    def t(text: Text, **values: object) -> str:
        return escape(say(text, language, **values))

    learner = row["learner"].encode("utf-8", "replace").decode()
    earned = t(POINTS, points=format(row["points"], "g"), maximum=format(row["max_points"], "g"))
    parts = [f"<!doctype html><html lang='{'zh-CN' if language == 'zh' else 'en'}'><meta charset='utf-8'>",
             f"<title>{t(TITLE, learner=learner)}</title><style>{STYLE}</style>",
             f"<h1>{t(TITLE, learner=learner)}</h1>",
             f"<p><strong>{earned}</strong></p>"]
    if row["reason"]:
        parts.append(f"<p>{t(UNREADABLE, reason=row['reason'])}</p>")
    head = "".join(f"<th>{t(text)}</th>" for text in (EXERCISE, STATUS, EARNED, CASES))
    parts.append(f"<table><tr>{head}</tr>")
    for name in content["exercises"]:
        one = row["exercises"][name]
        right = ", ".join(f"{ok}/{total}" for ok, total in one["right"].values())
        parts.append(f"<tr><td>{name}</td><td>{t(STATUSES[one['status']])}</td>"
                     f"<td>{one['points']:g} / {one['max_points']:g}</td><td>{right}</td></tr>")
    parts.append("</table>")
    for name in content["exercises"]:
        parts += _exercise(name, row["exercises"][name], language)
    for name, run in sorted(row.get("run", {}).items()):
        if run["num_cells"]:
            ok = run["num_cells"] - len(run["failed"])
            parts.append(f"<p>{escape(name)}: {t(RAN, ok=ok, total=run['num_cells'])}</p>")
    parts.append(f"<p>{t(SEEDS, release=rubric.release)}</p></html>")
    return "\n".join(parts) + "\n"


def _exercise(name: str, one: dict[str, Any], language: str) -> list[str]:
    """The rules that one exercise breaks, each with the case that shows it."""
    if not one["broken"] and not one["problem"]:
        return []
    parts = [f"<h2>{name}</h2>"]
    if one["problem"]:
        parts.append(f"<pre>{escape(one['problem'])}</pre>")
    for broken in one["broken"]:
        error = broken.get("error") or say(AN_ERROR, language)
        rule = say(RULES[broken["rule"]], language, error=error, limit=f"{broken['limit_s']:g}")
        parts.append("<h3>" + _CODE.sub(r"<code>\1</code>", escape(rule)) + "</h3>")
        if broken["source"] == "hidden":
            parts.append(f"<p>{escape(say(HIDDEN, language))}</p>")
            continue
        parts.append(f"<p>{escape(say(FOUND_BY, language, case=broken['case']))}</p>")
        for label, key in ((WENT_IN, "went_in"), (CAME_OUT, "came_out"), (DIFFERS, "place")):
            if broken[key]:
                parts.append(f"<p>{escape(say(label, language))}:</p><pre>{escape(broken[key])}</pre>")
    return parts
