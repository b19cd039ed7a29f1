"""Record models: what each stage writes, and what a reader may rely on.

Records are JSON, written once (see `storage`). Reading is lenient about additional keys, so that
records made elsewhere can be shown; it is strict about the schema version and about types.
`MB` in a key means MiB. Nothing is rounded.

Format history
--------------
training-performance-project/v1, memory-strategy-input-manifest/v1, memory-strategy-decision/v1:
    first versions. `content_sha256` is optional: records made elsewhere lack it.
"""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from memstrat.workload import canonical_json

REPORT_SCHEMA = "training-performance-project/v1"
MANIFEST_SCHEMA = "memory-strategy-input-manifest/v1"
DECISION_SCHEMA = "memory-strategy-decision/v1"
SEMANTIC_ID = "PERF-MEMORY-STRATEGY"
TASK = "task3_training_memory_optimization"
STAGE_BASELINE = "measurement_baseline"
STAGE_G0 = "activation_checkpoint_offload_benchmark"
STAGE_G1 = "activation_memory_boundary"
REAL_GPU, CPU_REHEARSAL = "real_gpu", "cpu_rehearsal"
UNHASHED = ("provenance", "content_sha256")

RunMode = Literal["real_gpu", "cpu_rehearsal"]
RunStatus = Literal["ok", "oom", "failed"]
CandidateStatus = Literal["ok", "oom", "failed", "partial_oom"]


class Record(BaseModel):
    """Base of all records: frozen, additional keys kept, no NaN or infinity (JSON has none)."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class PathEvidence(Record):
    """What one probe step did with its saved tensors. Counts and bytes of one training step."""

    num_regions: int = Field(ge=0, description="regions (decoder layers) of the model")
    num_recomputed_regions: int = Field(ge=0, description="regions whose forward ran again in backward")
    num_packed: int = Field(ge=0, description="saved tensors the strategy's own pack hook took")
    num_unpacked: int = Field(ge=0)
    packed_bytes: int = Field(ge=0)
    unpacked_bytes: int = Field(ge=0)
    packed_bytes_by_kind: dict[str, int] = Field(
        description="parameter, duplicate (a storage packed before in this step), logits, region_input, other")
    num_packed_inside_regions: int = Field(ge=0)
    num_region_inputs_packed: int = Field(default=0, ge=0, description="packs of a region's input tensor")


class PhaseMemory(Record):
    """One phase of the probe step."""

    peak_allocated_bytes: int
    host_peak_bytes: int | None = None
    categories_at_peak: dict[str, int] | None = Field(
        default=None, description="bytes by kind of memory at the phase's peak; null where not told apart")


class Run(Record):
    """One strategy, one repeat, one fresh process. Raw values, nothing rounded."""

    name: str
    repeat: int = Field(ge=0, description="block of the interleaving, from 0")
    seq_len: int
    optimizer: str
    status: RunStatus
    reason: str | None = Field(default=None, description="why the run is not ok, in one line")
    traceback: str | None = None
    step_times_ms: list[float] = []
    step_time_ms: float | None = Field(default=None, description="median of step_times_ms")
    samples_per_s: float | None = Field(default=None, description="micro-batch x 1000 / step_time_ms")
    loss: float | None = Field(default=None, description="last timed step's")
    eval_loss: float | None = None
    peak_memory_mb: float | None = Field(default=None, description="MiB, peak allocated over the timed steps")
    peak_reserved_mb: float | None = Field(default=None, description="MiB; null on a CPU")
    host_peak_mb: float | None = Field(default=None, description="MiB the strategy held on the host in the probe step")
    memory_source: Literal["cuda_allocator", "tensor_accounting"] | None = None
    step1_loss: float | None = Field(default=None, description="loss of the first step, before any update")
    step1_grad_norm: float | None = None
    step1_loss_difference: float | None = Field(default=None, description="|this - the first ok baseline run's|")
    step1_grad_norm_difference: float | None = None
    path: PathEvidence | None = None
    execution_path_verified: bool | None = Field(default=None, description="derived from path, never set")
    path_problems: list[str] = []
    phases: dict[str, PhaseMemory] | None = None
    resident_after_forward_bytes: int | None = None
    attention_kernels: list[str] = Field(default=[], description="attention operators seen in the probe step")
    num_threads: int | None = None
    load_average: float | None = Field(default=None, description="one-minute load when the run began")
    startup_s: float | None = Field(default=None, description="from asking for the process to its first statement")
    wall_s: float | None = None


class Stability(Record):
    """Spread over the successful runs: (min, max) of each."""

    step_time_range_ms: tuple[float, float]
    throughput_range_samples_per_s: tuple[float, float]
    peak_memory_range_mb: tuple[float, float]


class Candidate(Record):
    """All repeats of one strategy at one length."""

    name: str
    seq_len: int | None = None
    optimizer: str | None = None
    status: CandidateStatus
    step_time_ms: float | None = None
    samples_per_s: float | None = None
    loss: float | None = None
    eval_loss: float | None = None
    peak_memory_mb: float | None = None
    peak_reserved_mb: float | None = None
    execution_path_verified: bool | None = None
    step1_loss_difference: float | None = Field(default=None, description="largest |strategy - baseline|")
    step1_grad_norm_difference: float | None = None
    stability: Stability | None = None
    successful_runs: int = 0
    oom_runs: int = 0
    failed_runs: int = 0
    runs: list[Run] = []


class ManifestInput(Record):
    role: Literal["training_baseline"]
    path: str = Field(description="relative to the folder that holds benchmarks/")
    sha256: str
    schema_version: str


class TopRecord(Record):
    schema_version: str
    semantic_id: str = SEMANTIC_ID
    run_label: str | None = None
    content_sha256: str | None = Field(
        default=None, description="of the canonical JSON without provenance and this key: tells an edit")
    provenance: dict[str, Any] = {}


class InputManifest(TopRecord):
    """Which earlier measurement an experiment rests on."""

    workload_id: str
    hardware_id: str
    inputs: list[ManifestInput]


class _Report(TopRecord):
    run_mode: RunMode = REAL_GPU
    task: str = TASK
    stage: str
    workload_id: str | None = None
    hardware_id: str | None = None
    config: dict[str, Any]
    experiment: dict[str, Any] = {}


class TrainingBaseline(_Report):
    """The workload measured without any strategy."""

    baseline: Candidate


class G0Record(_Report):
    """Every strategy on the fixed workload."""

    g0_reused: bool = False
    environment_preflight: dict[str, Any] = {}
    source_manifest: str | None = None
    source_manifest_sha256: str | None = None
    source_baseline: str | None = None
    source_baseline_sha256: str | None = None
    baseline_validation: dict[str, Any] = {}
    evidence_level: str | None = None
    budget: dict[str, Any]
    quality_floor: dict[str, Any]
    candidates: list[Candidate]
    summary: dict[str, Any]
    repeat_summary: dict[str, Any] = {}
    standard_metrics: dict[str, dict[str, Any]] = {}


class AdmissionCheck(Record):
    """May the next length be tried? Answered from a projection, never by running out of memory."""

    seq_len: int
    status: Literal["admitted", "blocked"]
    free_memory_mb: float
    safety_margin_mb: float
    safe_process_limit_mb: float
    projected_peak_mb: float
    projection: str
    estimated_peak_mb: float | None = None
    admitted_by: list[str] | None = None


class Admission(Record):
    status: Literal["admitted", "partially_admitted", "blocked", "not_evaluated"]
    total_memory_mb: float
    safety_margin_mb: float
    checks: list[AdmissionCheck]


class LengthRecord(Record):
    seq_len: int
    source: Literal["g1_sgd_baseline", "g1_sgd"]
    candidates: list[Candidate]


class G1Record(_Report):
    """The ladder of lengths under SGD without momentum: activations isolated."""

    source_g0: str
    source_g0_sha256: str
    status: Literal["completed", "completed_with_safety_boundary", "blocked"]
    reason: str | None = None
    evidence_level: str = "safe_activation_isolation_length_ladder"
    budget: dict[str, Any]
    quality_floor: dict[str, Any]
    admission: Admission
    length_records: list[LengthRecord]
    summary: dict[str, Any]
    assessment: dict[str, Any]


class DecisionRecord(TopRecord):
    """The decision with its two scopes, and what goes to the budget project."""

    run_mode: RunMode
    source_g0: str
    source_g0_sha256: str
    source_g1: str
    source_g1_sha256: str
    top_level_decision_scope: Literal["full_training_adoption"]
    decision: dict[str, Any]
    decision_scopes: dict[str, dict[str, Any]] = Field(
        description="full_training_adoption from G0 alone, activation_memory_mechanism from G1")
    g0_decision: dict[str, Any]
    g1_decision: dict[str, Any]
    handoff: dict[str, Any]


RECORD_MODELS: dict[str, type[TopRecord]] = {
    "training_baseline": TrainingBaseline, "input_manifest": InputManifest,
    "g0": G0Record, "g1": G1Record, "decision": DecisionRecord,
}
SCHEMA_VERSIONS = {TrainingBaseline: REPORT_SCHEMA, InputManifest: MANIFEST_SCHEMA, G0Record: REPORT_SCHEMA,
                   G1Record: REPORT_SCHEMA, DecisionRecord: DECISION_SCHEMA}


def content_sha256(content: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON without `provenance` and `content_sha256`."""
    kept = {key: value for key, value in content.items() if key not in UNHASHED}
    return hashlib.sha256(canonical_json(kept).encode()).hexdigest()


def json_schema() -> dict[str, Any]:
    """JSON schema of every record, by name; `docs/records.schema.json` holds it."""
    return {name: model.model_json_schema() for name, model in RECORD_MODELS.items()}
