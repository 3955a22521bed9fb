//! Predicted ends and total busy times of a channel under any load.

use proptest::prelude::*;

use super::super::config::Endurance;
use super::super::fate::Fate;
use super::*;
use device::Geometry;

const BLOCKS_PER_LUN: u32 = 4;
const PAGES: u32 = 16;

/// Creates a channel of two LUNs with two planes each. An erase is suspended at most three times.
fn channel(transfer_ns: u64) -> Channel {
    let config = NandConfig {
        geometry: Geometry {
            channels: 1,
            luns_per_channel: 2,
            blocks_per_lun: BLOCKS_PER_LUN,
            pages_per_block: PAGES,
            page_bytes: 4096,
        },
        planes: 2,
        timing: NandTiming {
            read_ns: vec![30_000, 50_000],
            program_ns: vec![90_000, 200_000],
            erase_ns: 500_000,
            transfer_ns,
        },
        endurance: Endurance::unlimited(),
        seed: 1,
    };
    let fate = Fate {
        factory_bad: false,
        grown_bad: None,
    };
    let blocks = (0..config.geometry.blocks()).map(|number| Block::new(number, fate));
    Channel::new(&config, blocks.collect())
}

/// A command of a test.
#[derive(Clone, Copy, Debug)]
struct Asked {
    kind: Kind,
    /// Pair of blocks, one of each plane.
    pair: u32,
    /// First page, counted over both planes.
    first: u32,
    pages: u32,
    /// Time to the next command, in nanoseconds.
    pause_ns: u64,
}

fn asked() -> impl Strategy<Value = Vec<Asked>> {
    let kind = prop_oneof![
        6 => Just(Kind::Read),
        3 => Just(Kind::Program),
        1 => Just(Kind::Erase),
    ];
    let pages = prop_oneof![Just(1), Just(2), 1..2 * PAGES];
    let pause = prop_oneof![Just(0), 0..300_000u64];
    let parts = (kind, 0..BLOCKS_PER_LUN, 0..2 * PAGES, pages, pause);
    let command = parts.prop_map(|(kind, pair, first, pages, pause_ns)| Asked {
        kind,
        pair,
        first,
        pages,
        pause_ns,
    });
    proptest::collection::vec(command, 1..60)
}

/// Returns the rows of a command, if the rules allow it.
fn rows_of(channel: &Channel, asked: Asked) -> Option<Rows> {
    let (kind, pair) = (asked.kind, asked.pair);
    let first_block = BlockId(pair * 2);
    let first = match kind {
        Kind::Read => asked.first,
        Kind::Program => [0, 1]
            .map(|p| channel.blocks[BlockId(pair * 2 + p)].issued)
            .iter()
            .sum(),
        Kind::Erase => 0,
    };
    let is_torn = channel.blocks[first_block].state == State::Torn;
    let count = match kind {
        Kind::Erase => 2,
        Kind::Read | Kind::Program => asked.pages.min(2 * PAGES - first),
    };
    (count > 0 && (kind != Kind::Program || !is_torn)).then_some(Rows {
        first_block,
        planes: 2,
        first,
        count,
    })
}

/// Executes all commands, checks every predicted end, and returns the sum of the commands' times on an idle channel.
fn run(channel: &mut Channel, asked: &[Asked]) -> u64 {
    let mut pending: Vec<(CommandId, u64)> = Vec::new();
    let (mut now, mut alone) = (0, 0);
    for &command in asked {
        if let Some(rows) = rows_of(channel, command) {
            let id = channel.submit(now, command.kind, rows);
            alone += command.kind.alone(&channel.timing, &rows);
            pending.push((id, now + 1));
        }
        let end = now + command.pause_ns;
        now = pass(channel, &mut pending, now, end);
    }
    pass(channel, &mut pending, now, NEVER - 1);
    assert!(pending.is_empty(), "{} commands never end", pending.len());
    alone
}

/// Goes from event to event until `end`. `pending` has the latest predicted end of each command.
fn pass(channel: &mut Channel, pending: &mut Vec<(CommandId, u64)>, mut now: u64, end: u64) -> u64 {
    loop {
        pending.retain_mut(|(id, least)| {
            if let Some(outcome) = channel.outcome(*id) {
                outcome.unwrap();
                assert!(now >= *least, "ended at {now}, foretold for {least}");
                return false;
            }
            let foretold = channel.earliest_end(*id);
            assert!(foretold > now, "foretold for {foretold} at {now}");
            *least = foretold.max(*least);
            true
        });
        if channel.next > end {
            return end;
        }
        now = channel.next;
        channel.advance(now);
    }
}

proptest! {
    #[test]
    fn no_command_ends_before_its_earliest_end(asked in asked()) {
        run(&mut channel(20_000), &asked);
    }

    #[test]
    fn busy_time_is_that_of_the_commands_and_of_suspending_erases(asked in asked()) {
        let mut channel = channel(0);
        let alone = run(&mut channel, &asked);
        let counts = channel.counts();
        let suspending = counts.busy_ns - alone;
        prop_assert_eq!(suspending % ERASE_SUSPEND_NS, 0);
        // An erase covers both blocks of a pair.
        prop_assert!(suspending / ERASE_SUSPEND_NS <= counts.erases / 2 * 3);
    }
}

#[test]
fn one_command_alone_ends_when_it_was_foretold() {
    for kind in [Kind::Read, Kind::Program, Kind::Erase] {
        let mut channel = channel(20_000);
        let command = Asked {
            kind,
            pair: 0,
            first: 0,
            pages: 9,
            pause_ns: 0,
        };
        let rows = rows_of(&channel, command).unwrap();
        let id = channel.submit(0, kind, rows);
        let end = channel.earliest_end(id);
        assert_eq!(end, kind.alone(&channel.timing, &rows));
        channel.advance(end - 1);
        assert_eq!(channel.earliest_end(id), end);
        channel.advance(end);
        assert!(channel.outcome(id).is_some());
    }
}

#[test]
fn long_reads_in_turn_end_when_it_was_foretold() {
    let mut channel = channel(20_000);
    let rows = |first, count| Rows {
        first_block: BlockId(0),
        planes: 2,
        first,
        count,
    };
    let ids = [(0, 8), (3, 13), (8, 4)]
        .map(|(first, count)| channel.submit(0, Kind::Read, rows(first, count)));
    // The third command has two rows. Between them come one row of the second and, of the first, its second, third and fourth
    // rows.
    let last = channel.earliest_end(ids[2]);
    let alone = |first, count| Kind::Read.alone(&channel.timing, &rows(first, count));
    assert_eq!(last, alone(0, 2) + alone(3, 3) + alone(8, 4));
    channel.advance(NEVER - 1);
    assert!(ids.iter().all(|&id| channel.outcome(id).is_some()));
}
