"""Figures from records: what the text and the table say, what lies on disk, what cannot be drawn."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from record_factory import make_candidate, make_g0, make_g1, make_oom

from memstrat.errors import InputError, RecordError, UnknownNameError
from memstrat.plots import drawing, plot_label, plot_ladder, plot_memory_throughput, plot_phases
from memstrat.readout import Readout, read_file

GOLDEN = Path(__file__).parent / "golden"


def texts_of(figure):
    """Every text that the figure shows, legend included."""
    return "\n".join(item.get_text() for item in figure.findobj(lambda artist: hasattr(artist, "get_text")))


def test_memory_throughput_text_says_what_the_figure_shows():
    drawn = plot_memory_throughput(make_g0())
    assert drawn.text == """\
Peak memory against throughput [CPU rehearsal, not a GPU result]
demo, small/model (random weights), 1 x 256 tokens, float32, AdamW, some CPU
Memory: bytes of live tensors, counted as if the CPU were the device.
baseline: 100.0 MiB, 10 samples/s, over the memory cap
checkpoint: 60.0 MiB, 8 samples/s, passes every gate
offload: 50.0 MiB, 4 samples/s, costs too much throughput
hybrid: 40.0 MiB, 9 samples/s, passes every gate
memory cap 90 MiB
at least 2 samples/s
saves at least 20 MiB
keeps at least 70% of the baseline"""


def test_memory_throughput_table_holds_raw_values():
    drawn = plot_memory_throughput(make_g0(make_candidate("baseline"), make_candidate("hybrid")))
    assert drawn.columns[:6] == ("strategy", "status", "peak_allocated_mib", "peak_min_mib", "peak_max_mib",
                                 "throughput_samples_per_s")
    assert drawn.rows == [
        ("baseline", "ok", 100.0, 99.0, 100.0, 10.0, 9.0, 11.0, 0.0, 1.0, 2.0, "verified", "over the memory cap"),
        ("hybrid", "ok", 40.0, 39.0, 40.0, 9.0, 8.0, 10.0, 60.0, 0.9, 2.0, "verified", "passes every gate")]


def test_memory_throughput_places_points_and_gates():
    figure = plot_memory_throughput(make_g0(make_candidate("baseline"), make_candidate("hybrid"))).figure
    lines = figure.axes[0].get_lines()
    points = {line.get_marker(): (line.get_xdata()[0], line.get_ydata()[0], line.get_markerfacecolor())
              for line in lines if line.get_marker() in ("o", "D")}
    assert points == {"o": (10.0, 100.0, "white"), "D": (9.0, 40.0, "#009E73")}
    level = {line.get_ydata()[0] for line in lines if list(line.get_xdata()) == [0, 1]}
    upright = {line.get_xdata()[0] for line in lines if list(line.get_ydata()) == [0, 1]}
    assert (level, upright) == ({90.0, 80.0}, {2.0, 7.0})


def test_every_run_is_a_dot():
    figure = plot_memory_throughput(make_g0(make_candidate("baseline"))).figure
    dots = [line.get_xdata()[0] for line in figure.axes[0].get_lines() if line.get_marker() == "."]
    assert dots == [9.0, 10.0, 11.0]


def test_out_of_memory_candidate_is_named_and_has_no_point():
    drawn = plot_memory_throughput(make_g0(make_candidate("baseline"), make_oom("offload")))
    assert "offload: out of memory" in drawn.text
    assert drawn.rows[1] == ("offload", "oom", *[None] * 9, "not recorded", "out of memory")
    marker = next(line for line in drawn.figure.axes[0].get_lines() if line.get_marker() == "^")
    assert marker.get_ydata()[0] == 1.0  # on the upper edge, in fractions of the axes
    assert marker.get_transform() == drawn.figure.axes[0].transAxes


def test_far_away_cap_does_not_squeeze_the_points():
    far = make_g0()["budget"] | {"memory_cap_mb": 1e6}
    drawn = plot_memory_throughput(make_g0(budget=far))
    assert drawn.figure.axes[0].get_ylim()[1] < 200
    assert "memory cap 1,000,000 MiB (off the scale)" in texts_of(drawn.figure)


def test_nothing_measured_still_draws():
    drawn = plot_memory_throughput(make_g0(make_oom("baseline"), make_oom("offload")))
    assert "baseline: out of memory" in drawn.text


@pytest.mark.parametrize(("mode", "stamp"), [
    ("cpu_rehearsal", "CPU rehearsal, not a GPU result"), (None, "Measured elsewhere, not by memstrat")])
def test_figure_is_stamped(mode, stamp):
    for drawn in (plot_memory_throughput(make_g0(run_mode=mode)), plot_ladder(make_g1(run_mode=mode)),
                  plot_phases(make_g0(run_mode=mode))):
        assert stamp in texts_of(drawn.figure)
        assert f"[{stamp}]" in drawn.text


def test_gpu_figure_carries_no_stamp():
    assert "not a GPU result" not in texts_of(plot_memory_throughput(make_g0(run_mode="real_gpu")).figure)


def test_record_made_elsewhere_is_drawn_without_verdict():
    drawn = plot_memory_throughput(json.loads((GOLDEN / "public_reference.json").read_text(encoding="utf-8")))
    assert "checkpoint: 9,450.8 MiB, 1.76 samples/s, path not recorded" in drawn.text
    assert {row[-1] for row in drawn.rows} == {"path not recorded"}
    assert "Memory: source not recorded." in drawn.text


def test_ladder_text_names_failures_and_refusals():
    assert plot_ladder(make_g1()).text == """\
Peak memory against sequence length [CPU rehearsal, not a GPU result]
demo, small/model, SGD, some CPU
Memory: bytes of live tensors, counted as if the CPU were the device.
baseline: 256: 100.0 MiB, 512: 200.0 MiB
checkpoint: 256: 60.0 MiB, 512: 120.0 MiB
offload: 256: 50.0 MiB
offload at 512: out of memory
hybrid: 256: 40.0 MiB, 512: 80.0 MiB
1,024 refused: 400 MiB projected, 350 allowed
memory cap 90 MiB"""


def test_ladder_marks_the_refused_length_at_its_projected_peak():
    figure = plot_ladder(make_g1()).figure
    crosses = [(line.get_xdata()[0], line.get_ydata()[0]) for line in figure.axes[0].get_lines()
               if line.get_marker() == "x"]
    assert crosses == [(1024, 400.0)]
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["256", "512", "1,024"]


def test_ladder_table_holds_lengths_and_refusals():
    rows = plot_ladder(make_g1()).rows
    assert rows[5] == (512, "checkpoint", "ok", 120.0, 60.0, 0.8, None)
    assert rows[7] == (512, "offload", "oom", None, None, None, None)
    assert rows[8] == (1024, None, "refused", None, None, None, "1,024 refused: 400 MiB projected, 350 allowed")


def test_phases_table_names_the_phase_that_sets_the_peak():
    drawn = plot_phases(make_g0())
    assert drawn.rows[0] == ("baseline", 80.0, 100.0, 45.0, 30.0, "backward")
    assert drawn.rows[3] == ("hybrid", 20.0, 40.0, 45.0, 30.0, "optimizer")
    assert "hybrid: forward 20.0 MiB, backward 40.0 MiB, optimizer step 45.0 MiB, alive after forward 30.0 MiB" \
        in drawn.text


@pytest.mark.parametrize(("draw", "record", "message"), [
    (plot_memory_throughput, {}, "candidates: must be a list of rows, got none."),
    (plot_ladder, {}, "length_records: must hold at least one length, got none."),
    (plot_phases, make_g0(make_oom("baseline")), "phases: must be recorded for at least one run, got none."),
])
def test_record_without_rows_is_refused(draw, record, message):
    with pytest.raises(RecordError) as caught:
        draw(record)
    assert str(caught.value).startswith(message)


def test_unknown_language_is_refused():
    with pytest.raises(UnknownNameError, match="language: must be en or zh, got 'fr'"):
        plot_memory_throughput(make_g0(), "fr")


def test_chinese_labels_or_a_note_where_there_is_no_font():
    known = {font.name for font in drawing.fontManager.ttflist}
    if not known & set(drawing.CJK_FONTS):
        pytest.skip("no font with Chinese characters is installed")
    drawn = plot_memory_throughput(make_g0(), "zh")
    assert "CPU 预演，不是 GPU 结果" in texts_of(drawn.figure)
    assert "checkpoint: 60.0 MiB, 8 样本/秒, 通过全部门槛" in drawn.text


def test_chinese_falls_back_to_english_without_a_font(monkeypatch):
    monkeypatch.setattr(drawing, "CJK_FONTS", ())
    drawn = plot_memory_throughput(make_g0(), "zh")
    assert drawn.text.endswith("(No font with Chinese characters was found: labels are English.)")
    assert "No font with Chinese" in texts_of(drawn.figure)
    assert "checkpoint: 60.0 MiB, 8 samples/s, passes every gate" in drawn.text


def test_no_text_is_smaller_than_nine_points():
    for drawn in (plot_memory_throughput(make_g0()), plot_ladder(make_g1()), plot_phases(make_g0())):
        drawn.figure.draw_without_rendering()
        sizes = [item.get_fontsize() for item in drawn.figure.findobj(lambda artist: hasattr(artist, "get_fontsize"))]
        assert min(sizes) >= 9


@pytest.mark.parametrize("draw", [lambda: plot_memory_throughput(make_g0()), lambda: plot_ladder(make_g1()),
                                  lambda: plot_phases(make_g0())])
def test_no_text_leaves_the_figure(draw):
    figure = draw().figure
    figure.draw_without_rendering()
    drawn, page = figure.get_tightbbox(), figure.bbox_inches
    assert (drawn.x0 >= 0, drawn.y0 >= 0, drawn.x1 <= page.x1, drawn.y1 <= page.y1) == (True, True, True, True)
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= figure.axes[0].bbox.x1


def test_strategies_differ_in_marker_and_line_as_well_as_colour():
    looks = drawing.looks_of(["mine", "yours"])
    assert len({look.marker for look in looks.values()}) == 6
    assert len({look.colour for look in looks.values()}) == 6
    assert len({look.dashes for look in looks.values()}) == 6


def test_saved_files_are_the_same_twice(tmp_path):
    first = plot_memory_throughput(make_g0()).save(tmp_path / "a")
    second = plot_memory_throughput(make_g0()).save(tmp_path / "b")
    assert [path.name for path in first] == ["memory_throughput.png", "memory_throughput.svg", "memory_throughput.txt",
                                             "memory_throughput.csv", "memory_throughput.md"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert first[0].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"<svg" in first[1].read_bytes()
    rows = list(csv.reader(first[3].read_text(encoding="utf-8").splitlines()))
    assert rows[1][:3] == ["baseline", "ok", "100.0"]
    assert first[4].read_text(encoding="utf-8").splitlines()[2].startswith("| baseline | ok | 100.000 | 99.000 |")


def test_label_is_drawn_with_all_its_figures(tmp_path):
    readout = Readout("demo", tmp_path, g0=make_g0(), g1=make_g1())
    names = [path.name for path in plot_label(readout, tmp_path)]
    assert [name for name in names if name.endswith(".png")] == [
        "demo_memory_throughput.png", "demo_phases.png", "demo_ladder.png"]
    assert len(names) == 15


def test_record_without_phases_has_no_phase_figure(tmp_path):
    paths = plot_label(read_file(GOLDEN / "public_reference.json"), tmp_path)
    assert [path.name for path in paths if path.suffix == ".png"] == ["public_reference_memory_throughput.png"]


def test_folder_that_is_a_file_is_refused(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(InputError, match="must be a folder"):
        plot_phases(make_g0()).save(blocked)


def test_notebook_gets_picture_and_text():
    data, metadata = plot_phases(make_g0())._repr_mimebundle_()
    assert data["image/png"][:4] == b"\x89PNG"
    assert metadata["image/png"]["alt"] == data["text/plain"]


def test_plots_need_no_torch():
    code = "import sys, memstrat.plots, memstrat.tables; print([n for n in sys.modules if n.split('.')[0] == 'torch'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
