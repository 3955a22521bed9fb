"""How large a run is."""

from dataclasses import dataclass

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Scale:
    """Sizes in bytes, times in seconds. Items have 30-byte keys and 270-byte values, the generator's
    defaults."""

    items: int
    limit: int                # of the cgroup, both servers
    small_limit: int          # of the cgroup of the Flowstone that has (nearly) no item in memory
    flash: int
    dram_items: int           # fit either server's memory
    extstore_load_rate: int   # items a second at which extstore keeps (nearly) all
    rounds: int
    settle_s: float           # GETs before the first round, so that caches are in their steady state
    warmup_s: float           # before each measurement
    measure_s: float
    fio_s: int
    rss_s: int                # of SETs
    rss_keys: int
    slope_items: tuple
    slope_limit: int
    slope_flash: int
    reclaim_flash: int        # room for the items, about twice
    tail_s: float
    cold_clients: int
    idle_s: int
    idle_connections: int
    connections_memory: int


FULL = Scale(
    items=3_000_000, limit=512 * MIB, small_limit=128 * MIB, flash=4 * GIB, dram_items=100_000,
    extstore_load_rate=60_000, rounds=3, settle_s=45, warmup_s=5, measure_s=20, fio_s=10,
    rss_s=600, rss_keys=12_000_000, slope_items=(3_000_000, 6_000_000, 12_000_000),
    slope_limit=512 * MIB, slope_flash=8 * GIB, reclaim_flash=2 * GIB, tail_s=40,
    cold_clients=1000, idle_s=30, idle_connections=10_000, connections_memory=256 * MIB)

SMALL = Scale(
    items=1_000_000, limit=272 * MIB, small_limit=64 * MIB, flash=2 * GIB, dram_items=20_000,
    extstore_load_rate=40_000, rounds=1, settle_s=5, warmup_s=1, measure_s=3, fio_s=3,
    rss_s=60, rss_keys=4_000_000, slope_items=(300_000, 600_000, 1_200_000),
    slope_limit=64 * MIB, slope_flash=1 * GIB, reclaim_flash=768 * MIB, tail_s=8,
    cold_clients=1000, idle_s=10, idle_connections=10_000, connections_memory=256 * MIB)

SCALES = {"full": FULL, "small": SMALL}
