"""Holdfast's native core: the reactor, the kernels and the simulator."""

from collections.abc import Callable, Mapping, Sequence
import enum


class Format(enum.Enum):
    """How elements are laid out on the wire."""

    bytes = 0

    f32 = 1

    f64 = 2

    bf16 = 3

    f16 = 4

def element_bytes(format: Format) -> int: ...

def instruction_set() -> str:
    """The instruction set the kernels use on this machine."""

def add(format: Format, accumulator: int, source: int, count: int) -> None:
    """
    accumulator[i] += source[i], widened; addresses of memory the caller keeps alive.
    """

def cast(target_format: Format, target: int, source_format: Format, source: int, count: int) -> None:
    """target[i] = source[i], converted and rounded to nearest even."""

def scale(format: Format, values: int, factor: float, count: int) -> None:
    """values[i] *= factor, in place."""

def narrow_stochastic(format: Format, target: int, source: int, count: int, seed: int) -> int:
    """
    target[i] = source[i] (float32), rounded up or down at random without bias. Returns how many were clipped.
    """

def narrow_with_residual(format: Format, target: int, source: int, residual: int, count: int) -> int:
    """
    target[i] = source[i] + residual[i], rounded to nearest even; residual[i] = what is left over, float32. Returns how many were clipped.
    """

def hadamard_encode(values: int, count: int, seed: int) -> None:
    """
    Encodes float32 values in place: every block becomes its randomised Hadamard transform, of the same length.
    """

def hadamard_decode(values: int, count: int, seed: int, missing: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """
    Decodes in place what was encoded with the same seed. Ranges that are missing hold zeros; what arrived of a block is scaled to stand for all of it. Returns the ranges of blocks of which nothing arrived: they stay zero.
    """

def pack(format: Format, source: int, count: int) -> bytes:
    """The elements in fewer bytes, without loss."""

def unpack(format: Format, target: int, count: int, packed: bytes) -> bool:
    """
    The elements that were packed, into memory that the caller keeps alive. False: these bytes are not so many.
    """

def fingerprints(num_blocks: int, pieces: Sequence[tuple[int, int, int]]) -> list[int]:
    """
    Fingerprints of blocks of memory, each made of its pieces (block, address, bytes) in their order.
    """

class Protection(enum.Enum):
    """What datagrams are protected against."""

    encrypted = 0

    authenticated = 1

    insecure = 2

class RateRule(enum.Enum):
    """What the sending rate of a path follows."""

    delay = 0

    model = 1

class Status(enum.Enum):
    """How an operation ended."""

    done = 0

    deadline_exceeded = 1

    peer_dead = 2

    mismatch = 3

class StageEnd(enum.Enum):
    """What ended a stage."""

    open = 0

    complete = 1

    early = 2

    limit = 3

    bound = 4

class PeerState(enum.Enum):
    """What is known about a peer."""

    joining = 0

    alive = 1

    dead = 2

    left = 3

class NoteFate(enum.Enum):
    """What became of a note."""

    delivered = 0

    deadline_exceeded = 1

    peer_dead = 2

class PeerReport:
    """One peer's part in an operation."""

    @property
    def contributed(self) -> int: ...

    @property
    def narrow_contributed(self) -> int: ...

    @property
    def contribution_size(self) -> int: ...

    @property
    def results(self) -> int: ...

    @property
    def result_size(self) -> int: ...

    @property
    def alive(self) -> bool: ...

    @property
    def contributions_sample_us(self) -> int: ...

    @property
    def results_sample_us(self) -> int: ...

    @property
    def silence_s(self) -> float: ...

    @property
    def contribution_arrived_s(self) -> tuple[float, float] | None: ...

    @property
    def result_arrived_s(self) -> tuple[float, float] | None: ...

class OperationReport:
    """What an operation says about itself when it ends."""

    @staticmethod
    def lost(*, operation: int, total: int, num_ranks: int, exact: bool, status: Status, culprits: Sequence[int], elapsed_s: float) -> OperationReport:
        """Of an operation that this rank has nothing of."""

    def spread(self, *, total: int, expected: int, delivered: int, not_received: int, ownerless: int, contributors: int, missing: Sequence[tuple[int, int]], elapsed_s: float) -> OperationReport:
        """
        As this one, which was of a shard, with what a whole bucket has come to.
        """

    @property
    def operation(self) -> int: ...

    @property
    def status(self) -> Status: ...

    @property
    def total(self) -> int: ...

    @property
    def delivered(self) -> int: ...

    @property
    def expected(self) -> int: ...

    @property
    def narrow_elements(self) -> int: ...

    @property
    def late_elements(self) -> int: ...

    @property
    def datagrams_expected(self) -> int: ...

    @property
    def datagrams_received(self) -> int: ...

    @property
    def peers(self) -> list[PeerReport]: ...

    @property
    def culprits(self) -> list[int]: ...

    @property
    def exact(self) -> bool: ...

    @property
    def elapsed_s(self) -> float: ...

    @property
    def waited_for_call_s(self) -> float: ...

    @property
    def contributions_end(self) -> StageEnd: ...

    @property
    def contributions_s(self) -> float: ...

    @property
    def results_end(self) -> StageEnd: ...

    @property
    def results_s(self) -> float: ...

    @property
    def not_received(self) -> int: ...

    @property
    def ownerless(self) -> int: ...

    @property
    def contributors(self) -> int: ...

    @property
    def counted(self) -> list[tuple[int, int, float]]:
        """
        (begin, end, times) of elements in which the own contribution does not count once.
        """

    @property
    def missing(self) -> list[tuple[int, int]]: ...

class PeerChange:
    """A peer appeared, fell silent or left."""

    @property
    def peer(self) -> int: ...

    @property
    def state(self) -> PeerState: ...

    @property
    def silence_s(self) -> float: ...

class PeerSnapshot:
    """The path to one peer, as it is now."""

    @property
    def rank(self) -> int: ...

    @property
    def state(self) -> PeerState: ...

    @property
    def window_bytes(self) -> int: ...

    @property
    def bandwidth_bytes_per_s(self) -> float: ...

    @property
    def pacing_bytes_per_s(self) -> float: ...

    @property
    def card_share_bytes_per_s(self) -> float: ...

    @property
    def failed_authentications(self) -> int: ...

    @property
    def sealing_phase(self) -> int: ...

    @property
    def opening_phase(self) -> int: ...

    @property
    def silence_s(self) -> float: ...

    @property
    def smoothed_rtt_s(self) -> float: ...

    @property
    def min_rtt_s(self) -> float: ...

    @property
    def datagrams_sent(self) -> int: ...

    @property
    def bytes_sent(self) -> int: ...

    @property
    def datagrams_received(self) -> int: ...

    @property
    def bytes_received(self) -> int: ...

    @property
    def packets_lost(self) -> int: ...

    @property
    def datagrams_resent(self) -> int: ...

class Snapshot:
    """The engine, as it is now."""

    @property
    def peers(self) -> list[PeerSnapshot]: ...

    @property
    def kernel_drops(self) -> int: ...

    @property
    def card_bytes_per_s(self) -> float: ...

    @property
    def wakeups(self) -> int: ...

    @property
    def open_operations(self) -> int: ...

    @property
    def early_bytes(self) -> int: ...

    @property
    def drops(self) -> dict: ...

class EndpointSettings:
    """What a job agreed on at join."""

    @staticmethod
    def make(*, rank: int, num_ranks: int, job: int, epoch: int, job_key: bytes, protection: Protection, packets_per_key: int, datagram_bytes: int, early_bytes_cap: int, heartbeat_interval_s: float, silence_limit_s: float, rate_rule: RateRule, num_groups: int = 1, hosts_meet: bool = False, pack_below_bytes_per_s: float = 0.0) -> EndpointSettings: ...

class Peer:
    """Where a rank can be reached, and which process it is."""

    def __init__(self, host: str, port: int, process: bytes, same_host: bool) -> None: ...

class Engine:
    """One socket and one reactor thread: the native end of a job."""

    def __init__(self, *, host: str, port: int, receive_buffer_bytes: int, send_buffer_bytes: int, use_segmentation: bool) -> None: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def receive_buffer_bytes(self) -> int: ...

    @property
    def send_buffer_bytes(self) -> int: ...

    @property
    def has_gso(self) -> bool: ...

    @property
    def has_gro(self) -> bool: ...

    @property
    def closed(self) -> bool: ...

    @property
    def next_operation(self) -> int:
        """The number that the next all_reduce will get."""

    def start(self, settings: EndpointSettings, peers: Sequence[Peer], record: bool = False) -> None: ...

    def wait_joined(self, timeout_s: float) -> list[int]:
        """Ranks not heard from when all are, or when the time is over."""

    def skip_to(self, operation: int) -> int:
        """
        The next call takes part in this operation, if it is later than the next; returns which it is.
        """

    def all_reduce(self, *, data: int, count: int, format: Format, layout: int, exact: bool, deadline_s: float, average: bool, early_wait_s: tuple[float, float] = (-1.0, -1.0), samples_us: tuple[int, int] = (0, 0), repair_grace_s: float = -1.0, contributions_within_s: float = 0.0, limit_s: tuple[float, float, float] = (0.0, 0.0, 0.0), number: int | None = None, between_groups: bool = False, narrow_behind_ratio: float = 0.0) -> int:
        """
        Takes part in the next operation, in place, or in one that was reserved. The memory must stay until the operation is reported.
        """

    def reserve(self) -> int:
        """
        The number of an operation to be called later; its place in the order is here.
        """

    def release_number(self, number: int) -> None:
        """What was reserved will not be called."""

    def has_ended(self, operation: int) -> bool:
        """Would `wait` have its report at once?"""

    def wait(self, operation: int, timeout_s: float) -> OperationReport | None: ...

    def send_note(self, peer: int, channel: int, bytes: bytes, deadline_s: float) -> int: ...

    def wait_note(self, ticket: int, timeout_s: float) -> NoteFate | None: ...

    def receive_note(self, channel: int, timeout_s: float) -> tuple[int, bytes] | None:
        """(sender, bytes) of the next note on a channel."""

    def discard_notes(self, channel: int) -> None:
        """Throws away what has arrived on a channel."""

    def publish(self, *, from_operation: int, t_b_s: float, t_c_s: float, early_wait_ratio: float, credit: int, deterministic: bool, duty_limit_s: float, shard_weights: Sequence[int] = [], division: int = 1, needs_majority: bool = False, encoded: bool = False, repair_grace_s: float = 0.0, zero_fill: bool = False, tells_by_element: bool = False) -> None:
        """Parameters that hold from a named operation on."""

    def take_peer_changes(self) -> list[PeerChange]: ...

    def peer_states(self) -> list[PeerState]:
        """
        By rank, as of the last changes; the own is of no account. Answered at once.
        """

    def snapshot(self) -> Snapshot: ...

    def failure(self) -> str:
        """Why the reactor ended by itself; empty while all is well."""

    def recording(self) -> bytes: ...

    def close(self) -> None: ...

def random_bytes(count: int) -> bytes:
    """Unpredictable bytes."""

def key_fingerprint(job_key: bytes) -> bytes:
    """
    Equal on two ranks exactly when their keys are; reveals nothing about the key.
    """

def path_mtu(host: str) -> int:
    """The MTU of the kernel's route to a host."""

def source_address_towards(host: str) -> str:
    """The own address the kernel would use towards a host."""

def interface_holding(address: str) -> str:
    """The interface that has an address, or ''."""

MAX_MEETING_MEMBERS: int = 64

NUM_MEETING_WORDS: int = 8

def create_meeting_memory(num_members: int) -> int:
    """
    A descriptor of memory in which so many ranks can meet. It has no name; the caller closes it.
    """

def meeting_shard(count: int, member: int, num_members: int) -> tuple[int, int]:
    """(begin, end) of the elements that a member sums."""

class MeetingKind(enum.Enum):
    """What the ranks of a host do together."""

    all_reduce = 0
    """Everybody has the whole sum."""

    reduce_scatter = 1
    """Everybody has its shard of the sum."""

    all_gather = 2
    """Everybody has everybody's shard."""

class MemberTimes:
    """When a member did its part, in seconds of the monotonic clock."""

    @property
    def called_s(self) -> float: ...

    @property
    def began_reducing_s(self) -> float: ...

    @property
    def contributed_s(self) -> float: ...

    @property
    def reduced_s(self) -> float: ...

    @property
    def words(self) -> list[int]:
        """What it told the others."""

class MeetingReport:
    """How an operation in shared memory ended."""

    @property
    def number(self) -> int: ...

    @property
    def status(self) -> Status: ...

    @property
    def concerned(self) -> bool:
        """
        False: an earlier operation failed, this one was not begun, and its data are as they were.
        """

    @property
    def culprits(self) -> list[int]: ...

    @property
    def members(self) -> list[MemberTimes]: ...

    @property
    def ended_s(self) -> float: ...

class HostMeeting:
    """This rank among those of its host that share memory with it."""

    def __init__(self, *, descriptor: int, member: int, num_members: int) -> None:
        """
        Maps what `create_meeting_memory` made; the descriptor is not needed afterwards.
        """

    @property
    def closed(self) -> bool: ...

    @property
    def num_members(self) -> int: ...

    @property
    def next_number(self) -> int:
        """The number that the next operation will get."""

    def meet(self, *, kind: MeetingKind, data: int, count: int, format: Format, layout: int, scale: float, deadline_s: float, subject: int = 0, words: Sequence[int] = [0, 0, 0, 0, 0, 0, 0, 0]) -> int:
        """
        Takes part in the next operation, in place. The memory must stay until the operation is reported.
        """

    def wait(self, number: int, timeout_s: float) -> MeetingReport | None: ...

    def give_up(self, status: Status, culprits: Sequence[int]) -> None:
        """
        The operation under way, or the next one, fails for all members, unless it is done already.
        """

    def close(self) -> None: ...

MAX_RANKS: int = 4096

class HadamardChoice(enum.Enum):
    """Whether gradients travel as their Hadamard transform."""

    off = 0

    on = 1

    auto = 2

class Introduction:
    """Which host a rank is on, and what all ranks must have in common."""

    def __init__(self, *, protection: Protection, deterministic: bool, measures_deadline: bool, uneven_shards: bool, hadamard: HadamardChoice, hierarchy: int, warmup_operations: int, key_fingerprint: bytes, host_identity: str) -> None: ...

    @property
    def protection(self) -> Protection: ...

    @property
    def deterministic(self) -> bool: ...

    @property
    def measures_deadline(self) -> bool: ...

    @property
    def uneven_shards(self) -> bool: ...

    @property
    def hadamard(self) -> HadamardChoice: ...

    @property
    def hierarchy(self) -> int:
        """0: off; 1: as the hosts suggest; else this many groups."""

    @property
    def warmup_operations(self) -> int: ...

    @property
    def key_fingerprint(self) -> bytes: ...

    @property
    def host_identity(self) -> str: ...

    def encode(self) -> bytes: ...

    @staticmethod
    def decode(message: bytes) -> Introduction | None:
        """None when the bytes are not such a message."""

class Whereabouts:
    """Where a rank listens, and which process it is."""

    def __init__(self, *, address: str, port: int, process: bytes) -> None: ...

    @property
    def address(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def process(self) -> bytes: ...

    def encode(self) -> bytes: ...

    @staticmethod
    def decode(message: bytes) -> Whereabouts | None:
        """None when the bytes are not such a message."""

class DatagramLimit:
    """The largest datagram the paths of a rank allow."""

    def __init__(self, *, size: int) -> None: ...

    @property
    def size(self) -> int: ...

    def encode(self) -> bytes: ...

    @staticmethod
    def decode(message: bytes) -> DatagramLimit | None:
        """None when the bytes are not such a message."""

def cpu_features() -> list[str]:
    """Those of the instructions Holdfast can use that this CPU has."""

def openssl_version() -> str:
    """The version of the OpenSSL that was loaded."""

def seals_with_vector_instructions() -> bool:
    """
    Whether AES-GCM runs on the CPU's vector instructions; else by OpenSSL.
    """

def sealing_rate(datagram_bytes: int, authenticate_only: bool, seconds: float) -> tuple[float, float]:
    """
    (sealed, opened): bytes per second on this core, measured for about so long.
    """

class SimBlock:
    """One block of a simulated result beside what went into it."""

    @property
    def operation(self) -> int: ...

    @property
    def owner(self) -> int: ...

    @property
    def contributors(self) -> int:
        """Bit r is set when rank r's part is in it."""

    @property
    def value(self) -> float:
        """Mean over the block of the result."""

    @property
    def gradients(self) -> list[float]:
        """Mean over the block of each rank's gradient."""

class SimCall:
    """What a rank calls a simulated operation with."""

    def __init__(self, *, deadline_s: float, early_wait_s: tuple[float, float] = (-1.0, -1.0), samples_us: tuple[int, int] = (0, 0), credit: int = 0, limit_s: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> None:
        """
        `deadline_s` is twice t_B. `early_wait_s`: x t_C of each stage; negative: as the scenario says.
        """

class SimMessage:
    """The elements of one rank's message to another, as they left."""

    @property
    def operation(self) -> int: ...

    @property
    def between_groups(self) -> bool:
        """Of a hierarchical operation."""

    @property
    def is_result(self) -> bool: ...

    @property
    def sender(self) -> int: ...

    @property
    def receiver(self) -> int: ...

    @property
    def first_s(self) -> float: ...

    @property
    def last_s(self) -> float: ...

    @property
    def num_datagrams(self) -> int: ...

    @property
    def payload_bytes(self) -> int:
        """Of elements alone, without headers and tags."""

class SimRun:
    """What one simulated run came to."""

    @property
    def seed(self) -> int: ...

    @property
    def num_ranks(self) -> int: ...

    @property
    def victim(self) -> int: ...

    @property
    def digest(self) -> int:
        """Of every datagram sent, with its time."""

    @property
    def virtual_seconds(self) -> float: ...

    @property
    def num_violations(self) -> int: ...

    @property
    def violations(self) -> list[str]:
        """The first few; each begins with the name of its invariant."""

    @property
    def num_key_changes(self) -> int: ...

    @property
    def num_bounded(self) -> int: ...

    @property
    def num_ended_at_limit(self) -> int: ...

    @property
    def num_narrow_elements(self) -> int: ...

    @property
    def num_exact(self) -> int: ...

    @property
    def num_exact_failed(self) -> int: ...

    @property
    def delivered(self) -> int: ...

    @property
    def expected(self) -> int: ...

    @property
    def blocks(self) -> list[SimBlock]: ...

    @property
    def messages(self) -> list[SimMessage]:
        """By operation, sender, stage and receiver."""

    @property
    def network(self) -> dict[str, int]: ...

    @property
    def drops(self) -> dict[str, int]: ...

class SimRuns:
    """What many simulated runs came to."""

    @property
    def num_runs(self) -> int: ...

    @property
    def num_failed(self) -> int: ...

    @property
    def failed(self) -> list[SimRun]:
        """The first few that broke an invariant."""

    @property
    def num_datagrams(self) -> int: ...

    @property
    def num_bounded(self) -> int: ...

    @property
    def num_ended_at_limit(self) -> int: ...

    @property
    def num_narrow_elements(self) -> int: ...

    @property
    def num_exact(self) -> int: ...

    @property
    def num_exact_failed(self) -> int: ...

    @property
    def delivered(self) -> int: ...

    @property
    def expected(self) -> int: ...

    @property
    def network(self) -> dict[str, int]: ...

    @property
    def drops(self) -> dict[str, int]: ...

class Replay:
    """What came of running a trace again."""

    @property
    def num_records(self) -> int: ...

    @property
    def num_datagrams_in(self) -> int: ...

    @property
    def num_batches_out(self) -> int: ...

    @property
    def num_reports_recorded(self) -> int: ...

    @property
    def digest(self) -> int:
        """Over everything that was sent."""

    @property
    def divergence(self) -> str:
        """Where it first did something else; empty: nowhere."""

    @property
    def drops(self) -> dict[str, int]: ...

    @property
    def reports(self) -> list[OperationReport]:
        """As the operations ended this time."""

def sim_defaults() -> dict[str, object]:
    """Every value a scenario can set, with its default."""

def sim_run(values: dict[str, object], seed: int, sample_blocks: bool = False, choose: Callable | None = None, learn: Callable | None = None) -> SimRun:
    """
    One run of a scenario. `choose(rank, operation, num_bytes)` says what each call is made with (None: as the scenario says), `learn(rank, report)` is told how it ended.
    """

def sim_run_many(values: dict[str, object], first_seed: int, count: int, stop_at_first_failure: bool = True) -> SimRuns:
    """Runs of a scenario, seed by seed."""

def replay_trace(trace: bytes) -> Replay:
    """Feeds the recorded trace of a real rank to a fresh endpoint."""

class Lengths(enum.Enum):
    """How the lengths of episodes and of the gaps between them are spread."""

    exponential = 0

    uniform = 1

class Episodes:
    """
    Something that comes and goes by the clock. Without a gap it is always there.
    """

    def __init__(self, on_ms: float = 0.0, off_ms: float = 0.0, lengths: Lengths = Lengths.exponential, spread_ratio: float = 0.0) -> None: ...

    @property
    def on_ms(self) -> float:
        """Mean length of an episode."""

    @on_ms.setter
    def on_ms(self, arg: float, /) -> None: ...

    @property
    def off_ms(self) -> float:
        """Mean gap between two; 0: one episode that never ends."""

    @off_ms.setter
    def off_ms(self, arg: float, /) -> None: ...

    @property
    def lengths(self) -> Lengths: ...

    @lengths.setter
    def lengths(self, arg: Lengths, /) -> None: ...

    @property
    def spread_ratio(self) -> float:
        """
        Uniform lengths lie in mean x (1 - spread) to mean x (1 + spread); 0: all equal.
        """

    @spread_ratio.setter
    def spread_ratio(self, arg: float, /) -> None: ...

    def __eq__(self, arg: object, /) -> bool: ...

class PortConditions:
    """
    One host's link to the switch, and the switch's queue towards the host.
    """

    @property
    def uplink_bits_per_s(self) -> float:
        """Host to switch; never drops."""

    @uplink_bits_per_s.setter
    def uplink_bits_per_s(self, arg: float, /) -> None: ...

    @property
    def downlink_bits_per_s(self) -> float:
        """Switch to host."""

    @downlink_bits_per_s.setter
    def downlink_bits_per_s(self, arg: float, /) -> None: ...

    @property
    def queue_bytes(self) -> int:
        """Towards the host, drop-tail, cross traffic included."""

    @queue_bytes.setter
    def queue_bytes(self, arg: int, /) -> None: ...

    @property
    def cross_traffic_share(self) -> float:
        """
        Of the downlink's rate, during `cross_traffic`; it comes first, and fills the queue.
        """

    @cross_traffic_share.setter
    def cross_traffic_share(self, arg: float, /) -> None: ...

    @property
    def cross_traffic(self) -> Episodes: ...

    @cross_traffic.setter
    def cross_traffic(self, arg: Episodes, /) -> None: ...

    @property
    def slow_down_ratio(self) -> float:
        """Divides the downlink's rate, during `slow_downs`."""

    @slow_down_ratio.setter
    def slow_down_ratio(self, arg: float, /) -> None: ...

    @property
    def slow_downs(self) -> Episodes: ...

    @slow_downs.setter
    def slow_downs(self, arg: Episodes, /) -> None: ...

    @property
    def frozen(self) -> bool:
        """
        During `freezes` neither direction moves; each holds up to `queue_bytes` and drops the rest.
        """

    @frozen.setter
    def frozen(self, arg: bool, /) -> None: ...

    @property
    def freezes(self) -> Episodes: ...

    @freezes.setter
    def freezes(self, arg: Episodes, /) -> None: ...

    @property
    def down(self) -> bool:
        """Everything to and from the host is lost."""

    @down.setter
    def down(self, arg: bool, /) -> None: ...

class PathConditions:
    """From one host to another, one way."""

    @property
    def loss_ratio(self) -> float:
        """Each packet by itself."""

    @loss_ratio.setter
    def loss_ratio(self, arg: float, /) -> None: ...

    @property
    def burst_loss_ratio(self) -> float:
        """During `bursts`: with their gaps a Gilbert-Elliott channel on a clock."""

    @burst_loss_ratio.setter
    def burst_loss_ratio(self, arg: float, /) -> None: ...

    @property
    def bursts(self) -> Episodes: ...

    @bursts.setter
    def bursts(self, arg: Episodes, /) -> None: ...

    @property
    def delay_ms(self) -> float: ...

    @delay_ms.setter
    def delay_ms(self, arg: float, /) -> None: ...

    @property
    def tail_delay_ms(self) -> float:
        """Added to the delay during `tails`; packets never overtake each other."""

    @tail_delay_ms.setter
    def tail_delay_ms(self, arg: float, /) -> None: ...

    @property
    def tails(self) -> Episodes: ...

    @tails.setter
    def tails(self, arg: Episodes, /) -> None: ...

class Conditions:
    """What the network is like: every port and every path."""

    def __init__(self, num_ports: int) -> None: ...

    @property
    def ports(self) -> tuple[PortConditions, ...]:
        """By port; change the elements in place."""

    @property
    def paths(self) -> Mapping[tuple[int, int], PathConditions]:
        """By (from, to); change the elements in place."""

    def validate(self) -> None:
        """Raises ValueError that names what is out of its range."""

class PortReport:
    """Traffic of one port, in IP packets of at most the MTU."""

    @property
    def packets_from_host(self) -> int: ...

    @property
    def bytes_from_host(self) -> int: ...

    @property
    def packets_to_host(self) -> int: ...

    @property
    def bytes_to_host(self) -> int: ...

    @property
    def queue_peak_bytes(self) -> int:
        """Towards the host, cross traffic included."""

    @property
    def uplink_peak_bytes(self) -> int:
        """Waiting to leave the host's link."""

    @property
    def cross_traffic_bytes(self) -> float:
        """Offered."""

    @property
    def losses(self) -> dict[str, int]:
        """Packets by cause, lost at this port or on the paths from it."""

class SwitchReport:
    """What the switch did since it was last reset."""

    @property
    def duration_s(self) -> float: ...

    @property
    def ports(self) -> list[PortReport]: ...

    @property
    def losses(self) -> dict[str, int]:
        """
        Packets by cause: random, burst, queue, down, frozen, unroutable, malformed, refused.
        """

    @property
    def lateness_p50_us(self) -> float:
        """How long after its due time a packet was handed to its host's kernel."""

    @property
    def lateness_p99_us(self) -> float: ...

    @property
    def lateness_p999_us(self) -> float: ...

    @property
    def lateness_max_us(self) -> float: ...

    @property
    def lateness_counts(self) -> list[tuple[float, int]]:
        """(at most so many microseconds late, so many packets), ascending."""

    @property
    def realtime(self) -> bool:
        """The thread was granted real-time scheduling."""

    @property
    def cpu_s(self) -> float:
        """Of the thread."""

    @property
    def num_wakeups(self) -> int: ...

    @property
    def num_reads(self) -> int: ...

    @property
    def num_writes(self) -> int: ...

class Fabric:
    """The switch as a pure machine: no clock, no thread, no packet contents."""

    def __init__(self, *, num_ports: int, seed: int, now_ns: int) -> None: ...

    def configure(self, now_ns: int, conditions: Conditions) -> None: ...

    def admit(self, now_ns: int, sender: int, receiver: int, packet: int, num_bytes: int) -> None:
        """A host sends a packet; `now_ns` never goes back."""

    def run_until_passage(self, limit_ns: int) -> list[tuple[int, int, bool]]:
        """
        Goes on to the next time at which packets come out or are lost, but not beyond the limit. Each one: when, which packet, whether it arrived. Empty: nothing until the limit.
        """

class Switch:
    """A network switch between TUN devices. One thread runs it."""

    def __init__(self, *, descriptors: Sequence[int], addresses: Sequence[str], seed: int) -> None:
        """
        Port i is the TUN device behind descriptors[i], which stays the caller's; addresses[i] is its host.
        """

    def configure(self, conditions: Conditions) -> None:
        """Takes effect at once."""

    def draw_anew(self, seed: int) -> None:
        """
        All that is random is drawn anew from this seed, from now on: episodes and losses, whatever was before.
        """

    def run(self) -> None:
        """Until `stop`, which may come first."""

    def stop(self) -> None: ...

    def report(self) -> SwitchReport:
        """Counters and lateness since the last reset."""

    def reset(self) -> None: ...

    def capacity_bound_s(self, start_ns: int, bytes_out: Sequence[int], bytes_in: Sequence[int]) -> float:
        """
        The least seconds from start_ns (time.monotonic_ns) in which every port could have sent and received so many bytes, with the capacity that cross traffic, slow-downs and freezes left. Looks back 120 s.
        """

    def frozen_s(self, start_ns: int, end_ns: int) -> list[float]:
        """
        For how many seconds between the two (time.monotonic_ns) each port was frozen. Looks back 120 s.
        """
