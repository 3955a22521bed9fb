//! `stats`: memcached's own names if the meaning is the same, and Flowstone's own.
//!
//! `docs/guide/statistics.md` has every field; a test compares the two.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use protocol::write::{refusal, stat, status};
use protocol::{Refusal, Status};

use engine::{EngineStats, FlashStats, NamedCounts as _};

use crate::config::ListenAddress;
use crate::counters::Totals;
use crate::replies::{FLUSH_BYTES, FREE_REPLY_BYTES, Replies};
use crate::shared::{ConnectionInfo, Shared, most_connections};

/// Bytes of a page, as memcached's slab classes have it.
const PAGE_BYTES: u64 = 1 << 20;
/// Number of objects on flash from which on the index's memory per object is reported. The size of a smaller index hardly
/// depends on its number of objects.
const OBJECTS_TO_SHARE: u64 = 10_000;

/// The version reported to clients: that of memcached whose protocol is spoken, then our own.
pub(crate) const VERSION: &str = concat!("1.6.45-flowstone-", env!("CARGO_PKG_VERSION"));

/// Appends the answer to `stats [argument]`.
pub(crate) fn write(shared: &Shared, out: &mut Vec<u8>, argument: Option<&[u8]>) {
    match argument {
        None => general(shared, out),
        Some(b"settings") => settings(shared, out),
        Some(b"items") => items(shared, out),
        Some(b"slabs") => slabs(shared, out),
        Some(b"sizes") => stat(out, "sizes_status", "disabled"),
        // No statistics by prefix are kept.
        Some(b"detail") => {}
        Some(b"flash") => flash(shared, out),
        Some(b"index") => index(shared, out),
        Some(b"reclaim") => reclaim(shared, out),
        Some(b"admission") => admission(shared, out),
        Some(b"wear") => wear(shared, out),
        Some(b"reset") => {
            shared.reset_counters();
            return status(out, Status::Reset, false);
        }
        Some(_) => return refusal(out, Refusal::UnknownCommand, false),
    }
    status(out, Status::End, false);
}

/// Appends a counter that other threads increment.
fn count(out: &mut Vec<u8>, name: &str, value: &AtomicU64) {
    stat(out, name, value.load(Ordering::Relaxed));
}

/// Counters since the last reset, under memcached's names, and their sources.
struct Figures {
    totals: Totals,
    engine: EngineStats,
    flash: FlashStats,
}

impl Figures {
    fn read(shared: &Shared) -> Self {
        Self {
            totals: shared.totals(),
            engine: shared.engine.stats(),
            flash: shared.flash_stats(),
        }
    }

    /// Live items that were dropped to make space for others.
    fn evictions(&self) -> u64 {
        self.flash.items_evicted + self.flash.index_full + self.engine.tier.rejections
    }

    fn evicted_unfetched(&self) -> u64 {
        self.flash.evicted_unfetched + self.engine.tier.rejections_unfetched
    }

    fn evicted_nonzero(&self) -> u64 {
        self.flash.evicted_nonzero + self.engine.tier.rejections_nonzero
    }

    /// Items that were dropped though they had been read since they were written to flash.
    fn evicted_active(&self) -> u64 {
        self.flash
            .items_evicted
            .saturating_sub(self.flash.evicted_unfetched)
    }

    /// Dead items whose space was reused on demand.
    fn reclaimed(&self) -> u64 {
        self.flash.items_expired + self.engine.tier.reclaimed
    }
}

fn general(shared: &Shared, out: &mut Vec<u8>) {
    let figures = Figures::read(shared);
    let Figures { totals, engine, .. } = &figures;
    let now = runtime::unix_seconds();
    let usage = runtime::process::usage();
    let connections = &shared.connections;
    stat(out, "pid", std::process::id());
    stat(out, "uptime", now.saturating_sub(shared.started_unix));
    stat(out, "time", now);
    stat(out, "version", VERSION);
    stat(out, "pointer_size", usize::BITS);
    let (user, system) = (usage.user.as_secs_f64(), usage.system.as_secs_f64());
    stat(out, "rusage_user", format_args!("{user:.6}"));
    stat(out, "rusage_system", format_args!("{system:.6}"));
    let most = most_connections(&shared.config);
    stat(out, "max_connections", most);
    let current = connections.current.load(Ordering::Relaxed);
    stat(out, "curr_connections", current);
    count(out, "total_connections", &connections.total);
    count(out, "rejected_connections", &connections.rejected);
    // A connection has its structure for as long as it is open.
    stat(out, "connection_structures", current);
    totals.each(&mut |name, value| {
        stat(out, name, value);
        if name == "get_misses" {
            // Counters of the engine that memcached has, too.
            stat(out, "get_expired", engine.paths.expired);
            stat(out, "get_flushed", engine.paths.flushed);
        }
    });
    // There is no authentication.
    stat(out, "auth_cmds", 0);
    stat(out, "auth_errors", 0);
    count(out, "idle_kicks", &shared.idle_kicks);
    let memory_bytes = shared.config.memory().0;
    stat(out, "limit_maxbytes", memory_bytes + flash_bytes(shared));
    // Connections beyond the limit get an error and are closed: listening never ends, and none gives way to another.
    stat(out, "accepting_conns", 1);
    stat(out, "listen_disabled_num", 0);
    stat(out, "threads", shared.workers.count());
    let hash_bytes = engine.dram_table_bytes + engine.memory.index_bytes;
    // As memcached's, in pointers.
    let slots = hash_bytes / u64::from(usize::BITS / 8);
    stat(out, "hash_power_level", slots.max(1).ilog2());
    stat(out, "hash_bytes", hash_bytes);
    // A table grows within the request that needs it.
    stat(out, "hash_is_expanding", 0);
    stat(out, "bytes", engine.item_bytes);
    // Whether in memory, on flash or both.
    stat(out, "curr_items", engine.items);
    stat(out, "total_items", engine.paths.items_set);
    stat(out, "expired_unfetched", engine.tier.expired_unfetched);
    stat(out, "evicted_unfetched", figures.evicted_unfetched());
    stat(out, "evicted_active", figures.evicted_active());
    stat(out, "evictions", figures.evictions());
    stat(out, "reclaimed", figures.reclaimed());
    crawler(out, "", engine);
    stat(out, "lru_crawler_starts", engine.tier.crawls);
    extstore(shared, out, engine);
    stat(out, "dram_hits", engine.paths.dram_hits);
    stat(out, "flash_hits", engine.paths.flash_hits);
    stat(out, "flash_misses", engine.paths.flash_misses);
    stat(out, "flash_failed_reads", engine.paths.failed_reads);
    stat(out, "resident_bytes", usage.resident_bytes);
}

/// Writes the counters of memory reclaimed by the crawler and in place. The names are memcached's, for all items and for a class
/// alike.
fn crawler(out: &mut Vec<u8>, class: &str, engine: &EngineStats) {
    let tier = &engine.tier;
    for (name, value) in [
        ("crawler_reclaimed", tier.crawler_reclaimed),
        ("crawler_items_checked", tier.crawler_items_checked),
        ("direct_reclaims", tier.direct_reclaims),
    ] {
        stat(out, &format!("{class}{name}"), value);
    }
}

fn flash_bytes(shared: &Shared) -> u64 {
    let store = shared.engine.store();
    u64::from(store.table().segments()) * u64::from(store.table().segment_bytes())
}

/// Writes the flash under memcached's names for its external storage: a segment is a page.
fn extstore(shared: &Shared, out: &mut Vec<u8>, engine: &EngineStats) {
    let store = shared.engine.store();
    let (counters, placement) = (store.counters(), &engine.placement);
    let free = store.pool().counts().free;
    let used = store.pool().segments_in_use().saturating_sub(free);
    let used_bytes = u64::from(used) * u64::from(store.table().segment_bytes());
    let rescued = placement.items_copied + placement.items_returned;
    stat(out, "extstore_compact_rescues", rescued);
    count(out, "extstore_page_allocs", &counters.segments_opened);
    let dropped = placement.segments_dropped;
    stat(out, "extstore_page_evictions", dropped);
    let reclaimed = placement.segments_reclaimed;
    stat(out, "extstore_page_reclaims", reclaimed);
    stat(out, "extstore_pages_free", free);
    stat(out, "extstore_pages_used", used);
    let evicted = placement.items_evicted;
    stat(out, "extstore_objects_evicted", evicted);
    stat(out, "extstore_objects_read", counters.reads.sum());
    count(out, "extstore_objects_written", &counters.items_appended);
    stat(out, "extstore_objects_used", engine.flash_items);
    stat(out, "extstore_bytes_evicted", placement.bytes_evicted);
    count(out, "extstore_bytes_written", &counters.bytes_written);
    stat(out, "extstore_bytes_read", counters.bytes_read.sum());
    stat(out, "extstore_bytes_used", engine.flash_item_bytes);
    let fragmented = used_bytes.saturating_sub(engine.flash_item_bytes);
    stat(out, "extstore_bytes_fragmented", fragmented);
    stat(out, "extstore_limit_maxbytes", flash_bytes(shared));
}

fn settings(shared: &Shared, out: &mut Vec<u8>) {
    let config = &shared.config;
    let server = &config.server;
    stat(out, "maxbytes", config.memory().0);
    stat(out, "maxconns", most_connections(config));
    let (mut tcp, mut unix) = (None, None);
    for address in server.listen.iter().rev() {
        match address {
            ListenAddress::Tcp(address) => tcp = Some(address),
            ListenAddress::Unix(path) => unix = Some(path.display().to_string()),
        }
    }
    stat(out, "tcpport", tcp.map_or(0, |address| address.port()));
    stat(out, "udpport", 0);
    let inter = tcp.map(|address| address.ip().to_string());
    stat(out, "inter", inter.as_deref().unwrap_or("NULL"));
    stat(out, "domain_socket", unix.as_deref().unwrap_or("NULL"));
    stat(out, "verbosity", 0);
    stat(out, "umask", format_args!("{:o}", server.unix_mode));
    stat(out, "evictions", "on");
    stat(out, "num_threads", shared.workers.count());
    stat(out, "cas_enabled", "yes");
    stat(out, "auth_enabled_sasl", "no");
    stat(out, "item_size_max", config.max_item_size().0);
    stat(out, "maxconns_fast", "yes");
    stat(out, "idle_timeout", server.idle_timeout.0);
    stat(out, "lru_crawler", "yes");
    stat(out, "lru_maintainer_thread", "no");
    stat(out, "flush_enabled", yes_no(server.enable_flush_all));
    stat(out, "shutdown_command", yes_no(server.enable_shutdown));
    stat(out, "dump_enabled", "yes");
    stat(out, "hash_algorithm", "xxh3");
    stat(out, "binding_protocol", "ascii");
    stat(out, "ext_path", &config.cache.flash);
    stat(out, "preset", &config.cache.preset);
    stat(out, "io", &shared.io_words);
}

fn yes_no(set: bool) -> &'static str {
    if set { "yes" } else { "no" }
}

/// Writes all items as those of one class.
fn items(shared: &Shared, out: &mut Vec<u8>) {
    let figures = Figures::read(shared);
    let Figures { totals, engine, .. } = &figures;
    let now = runtime::unix_seconds();
    let age = engine.oldest_access.map_or(0, |at| now.saturating_sub(at));
    stat(out, "items:1:number", engine.items);
    stat(out, "items:1:age", age);
    stat(out, "items:1:mem_requested", engine.item_bytes);
    stat(out, "items:1:evicted", figures.evictions());
    stat(out, "items:1:evicted_nonzero", figures.evicted_nonzero());
    stat(out, "items:1:evicted_time", figures.flash.evicted_age);
    stat(out, "items:1:outofmemory", totals.store_no_memory);
    // Nothing refers to an item beyond a request.
    stat(out, "items:1:tailrepairs", 0);
    stat(out, "items:1:reclaimed", figures.reclaimed());
    stat(
        out,
        "items:1:expired_unfetched",
        engine.tier.expired_unfetched,
    );
    stat(
        out,
        "items:1:evicted_unfetched",
        figures.evicted_unfetched(),
    );
    stat(out, "items:1:evicted_active", figures.evicted_active());
    crawler(out, "items:1:", engine);
    stat(out, "items:1:lrutail_reflocked", 0);
}

/// Writes the memory of the items as pages of one class, whose chunks have the length of the average item in memory.
fn slabs(shared: &Shared, out: &mut Vec<u8>) {
    let engine = shared.engine.stats();
    let totals = shared.totals();
    let used = engine.dram_items;
    let chunk_bytes = engine.dram_item_bytes.div_ceil(used.max(1)).max(1);
    let chunks_per_page = (PAGE_BYTES / chunk_bytes).max(1);
    let pages = engine.dram_bytes.div_ceil(PAGE_BYTES);
    let chunks = (pages * chunks_per_page).max(used);
    stat(out, "1:chunk_size", chunk_bytes);
    stat(out, "1:chunks_per_page", chunks_per_page);
    stat(out, "1:total_pages", pages);
    stat(out, "1:total_chunks", chunks);
    stat(out, "1:used_chunks", used);
    stat(out, "1:free_chunks", chunks - used);
    stat(out, "1:free_chunks_end", 0);
    for (name, value) in [
        ("get_hits", totals.get_hits),
        ("cmd_set", totals.cmd_set),
        ("delete_hits", totals.delete_hits),
        ("incr_hits", totals.incr_hits),
        ("decr_hits", totals.decr_hits),
        ("cas_hits", totals.cas_hits),
        ("cas_badval", totals.cas_badval),
        ("touch_hits", totals.touch_hits),
    ] {
        stat(out, &format!("1:{name}"), value);
    }
    stat(out, "active_slabs", 1);
    stat(out, "total_malloced", engine.dram_bytes);
}

/// Answers `stats conns`, for any number of connections.
pub(crate) async fn conns(shared: &Shared, replies: &mut Replies) -> io::Result<()> {
    let mut next = Some(0);
    while let Some(first) = next {
        replies.reserve(FLUSH_BYTES + FREE_REPLY_BYTES).await?;
        let out = &mut replies.out;
        next = shared.connections.each_from(first, |id, info| {
            conn(out, id, info);
            out.len() < FLUSH_BYTES
        });
        replies.send().await?;
    }
    status(&mut replies.out, Status::End, false);
    Ok(())
}

fn conn(out: &mut Vec<u8>, id: u64, info: &ConnectionInfo) {
    let address = match info.peer {
        runtime::net::PeerAddr::Tcp(peer) => format!("tcp:{peer}"),
        runtime::net::PeerAddr::Unix => "unix".to_owned(),
    };
    stat(out, &format!("{id}:addr"), address);
    let state = if info.busy.load(Ordering::Relaxed) {
        "conn_parse_cmd"
    } else {
        "conn_read"
    };
    stat(out, &format!("{id}:state"), state);
    let last_active = info.last_active.load(Ordering::Relaxed);
    let idle = runtime::unix_seconds().saturating_sub(last_active);
    stat(out, &format!("{id}:secs_since_last_cmd"), idle);
}

fn flash(shared: &Shared, out: &mut Vec<u8>) {
    let engine = shared.engine.stats();
    let store = shared.engine.store();
    let counters = store.counters();
    stat(out, "path", &shared.config.cache.flash);
    stat(out, "device", &shared.flash_words);
    let index = shared.config.cache.index_flash.as_ref();
    if let (Some(index), Some(words)) = (index, &shared.index_words) {
        stat(out, "index_path", index);
        stat(out, "index_device", words);
    }
    stat(out, "io", &shared.io_words);
    stat(out, "flash_bytes", flash_bytes(shared));
    stat(out, "segment_bytes", store.table().segment_bytes());
    stat(out, "segments", store.table().segments());
    stat(out, "segments_free", store.pool().counts().free);
    stat(out, "segments_written", store.pool().counts().written);
    stat(out, "segments_waiting", store.pool().counts().sealed);
    count(out, "segments_retired", &counters.segments_retired);
    stat(out, "objects_on_flash", engine.placement.objects);
    stat(out, "flash_reads", counters.reads.sum());
    stat(out, "flash_bytes_read", counters.bytes_read.sum());
    count(out, "flash_bytes_written", &counters.bytes_written);
    stat(out, "item_bytes_set", engine.paths.item_bytes_set);
    let set = engine.paths.item_bytes_set.max(1) as f64;
    let written = counters.bytes_written.load(Ordering::Relaxed);
    let written = written - shared.reset_base.lock().flash_bytes_written;
    let clwa = written as f64 / set;
    stat(out, "clwa", format_args!("{clwa:.3}"));
    count(out, "read_errors", &counters.read_errors);
    count(out, "write_errors", &counters.write_errors);
    count(out, "corrupt_items", &counters.corrupt_items);
    stat(out, "items_lost", engine.placement.items_lost);
    stat(out, "shared_flights", engine.paths.shared_reads);
    stat(out, "promotions", engine.paths.promotions);
    stat(out, "demotions", engine.tier.demotions);
    stat(out, "rejections", engine.tier.rejections);
    stat(out, "clean_evictions", engine.tier.clean_evictions);
    stat(out, "second_chances", engine.tier.second_chances);
    stat(out, "written_back", engine.tier.written_back);
    stat(out, "write_waits", engine.write_waits);
    if let Some((bytes_per_s, held_back)) = engine.write_limit {
        stat(out, "flash_write_limit", bytes_per_s);
        stat(out, "write_limit_waits", held_back.waits);
        stat(out, "write_limit_wait_us", held_back.waited.as_micros());
        stat(out, "write_limit_journal_bytes", held_back.charged);
        stat(out, "write_limit_rejections", engine.tier.held_back);
    }
    durability(shared, out);
}

/// Writes the state of journal and checkpoints, and of the recovery after the last start.
fn durability(shared: &Shared, out: &mut Vec<u8>) {
    let journal = shared.engine.journal();
    let (journal_bytes, journal_used) = journal.fill();
    stat(out, "journal_bytes", journal_bytes);
    stat(out, "journal_bytes_used", journal_used);
    stat(out, "journal_records", journal.records());
    stat(out, "journal_void", u8::from(journal.is_void()));
    let checkpoints = shared.engine.checkpoint_stats();
    stat(out, "journal_syncs", checkpoints.syncs);
    stat(out, "journal_sync_errors", checkpoints.sync_errors);
    stat(out, "checkpoints", checkpoints.written);
    stat(out, "checkpoint_bytes", checkpoints.bytes);
    stat(out, "checkpoints_failed", checkpoints.failed);
    let recovery = shared.engine.recovery();
    stat(out, "recovery_running", u8::from(recovery.is_running));
    stat(out, "recovery_segments", recovery.segments);
    stat(out, "recovery_segments_done", recovery.segments_done);
    stat(out, "recovery_items", recovery.items);
    stat(out, "recovery_items_dead", recovery.items_dead);
    stat(out, "recovery_items_unnamed", recovery.items_unnamed);
    let unreadable = recovery.segments_unreadable;
    stat(out, "recovery_segments_unreadable", unreadable);
    stat(out, "recovery_us", recovery.micros);
}

fn index(shared: &Shared, out: &mut Vec<u8>) {
    let engine = shared.engine.stats();
    let objects = engine.placement.objects;
    stat(
        out,
        "placement",
        shared.engine.config().placement.describe().name,
    );
    stat(out, "objects_on_flash", objects);
    stat(out, "index_dram_bytes", engine.memory.index_bytes);
    if objects >= OBJECTS_TO_SHARE {
        let bits = engine.memory.index_bytes as f64 * 8.0 / objects as f64;
        stat(out, "dram_bits_per_object", format_args!("{bits:.1}"));
    }
    stat(out, "index_full", engine.placement.index_full);
    stat(out, "fixed_dram_bytes", engine.memory.fixed_bytes);
    stat(out, "dram_tier_bytes", engine.dram_bytes);
    stat(out, "dram_tier_limit_bytes", engine.dram_limit_bytes);
    stat(out, "dram_large_bytes", engine.dram_large_bytes);
    stat(out, "dram_items", engine.dram_items);
    shared
        .engine
        .placement()
        .stats(&mut |name, value| stat(out, name, value));
}

fn reclaim(shared: &Shared, out: &mut Vec<u8>) {
    let placement = shared.engine.stats().placement;
    stat(
        out,
        "segments_free",
        shared.engine.store().pool().counts().free,
    );
    stat(out, "low_watermark", placement.low_watermark);
    stat(out, "high_watermark", placement.high_watermark);
    stat(out, "segments_reclaimed", placement.segments_reclaimed);
    stat(out, "segments_dropped", placement.segments_dropped);
    stat(out, "gc_items_copied", placement.items_copied);
    stat(out, "gc_bytes_copied", placement.bytes_copied);
    stat(out, "items_evicted", placement.items_evicted);
    stat(out, "items_expired", placement.items_expired);
}

fn admission(shared: &Shared, out: &mut Vec<u8>) {
    let admission = shared.engine.stats().admission;
    let policy = &shared.engine.config().admission;
    stat(out, "admission", policy.name());
    stat(out, "items_admitted", admission.admitted);
    stat(out, "items_refused", admission.refused);
    stat(out, "items_remembered", admission.remembered);
    for (name, value) in shared.engine.learner_stats().iter() {
        stat(out, name, value);
    }
}

fn wear(shared: &Shared, out: &mut Vec<u8>) {
    let placement = shared.engine.stats().placement;
    let store = shared.engine.store();
    let counters = store.counters();
    count(out, "erases", &counters.erases);
    let worn = store.pool().wear();
    stat(out, "erase_min", worn.least);
    stat(out, "erase_max", worn.most);
    stat(out, "erase_mean", format_args!("{:.2}", worn.mean));
    stat(out, "wear_levelings", placement.wear_levelings);
    stat(out, "segments_leveled", placement.segments_leveled);
    stat(out, "segments_waiting", store.pool().worn_least());
    count(out, "segments_moved", &counters.segments_moved);
    count(out, "segments_retired", &counters.segments_retired);
}
