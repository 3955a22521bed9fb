//! Inspection: it reports exactly the items that a start then finds, and all damage but no false damage. It changes
//! no byte.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{
    AlignedBuf, Disk, Fault, FaultyDisk, Image, IoFuture, Latency, MemoryDisk, Operation,
    SharedBuf, When,
};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::format::FormatError;
use flowstone_engine::format::superblock::{
    HashSeed, IMAGE_FORMAT, ImageShape, IndexRegion, Superblock,
};
use flowstone_engine::inspect::{
    self, Flaw, FlawedPlace, InspectError, InspectOptions, Inspection, ItemCounts, JournalState,
    Outlook,
};
use flowstone_engine::journal::{JournalError, Unusable};
use flowstone_engine::{Distrust, Put, SuperblockCopy};
use rand::Rng;
use runtime::sim::Sim;

use crate::support::{
    Left, Media, SEGMENT_BYTES, any_len, for_each_seed, numbered, random, set, simulate, start,
    tight, value,
};

const IMAGE_BYTES: u64 = 33 << 20;
const WARM: Outlook = Outlook::Warm { orderly: true };
const CRASHED: Outlook = Outlook::Warm { orderly: false };

pub(crate) async fn inspect_media(
    media: &Media,
    options: InspectOptions,
) -> Result<Inspection, InspectError> {
    inspect::inspect(&media.disk, Some(&*media.journal), options, &mut |_| {}).await
}

/// Inspects all of `left`, and checks that nothing in it changes.
pub(crate) fn inspect_left(left: &Left, verify: bool) -> Result<Inspection, InspectError> {
    simulate(1, async {
        let (disk, media) = left.media();
        let options = InspectOptions {
            verify,
            ..InspectOptions::default()
        };
        let inspection = inspect_media(&media, options).await;
        assert!(Left::of(&disk, &media) == *left, "something was touched");
        assert_eq!(media.journal.stores(), 0);
        inspection
    })
}

pub(crate) fn sound(left: &Left) -> Inspection {
    let inspection = inspect_left(left, true).unwrap();
    assert!(inspection.is_sound(), "{:?}", inspection.outlook);
    assert!(!inspection.is_changing && inspection.segments_changed == 0);
    let verified = inspection.verified.unwrap();
    assert_eq!(verified.segments, inspection.segments.living);
    let items = inspection.items;
    assert_eq!(verified.items_sound, items.alive + items.superseded);
    assert_adds_up(&inspection);
    inspection
}

/// Checks that every segment, and every byte of the live segments, is counted in exactly one state.
fn assert_adds_up(inspection: &Inspection) {
    let segments = inspection.segments;
    let all: u64 = segments.by_state().iter().map(|(_, count)| count).sum();
    assert_eq!(all, u64::from(inspection.superblock.segments.get()));
    let items = inspection.items;
    let dead = items.displaced + items.overwritten + items.flushed + items.expired;
    let hidden = items.superseded + items.unnamed;
    assert_eq!(items.listed, items.alive + dead + hidden);
    let bytes = items.alive_bytes + items.dead_bytes + items.summary_bytes + items.unused_bytes;
    let segment_bytes = inspection.superblock.segment_bytes.get();
    assert_eq!(bytes, segments.living * u64::from(segment_bytes));
}

/// Returns the state after a clean stop with `count` items.
fn stopped(count: u64) -> Left {
    Left::stopped(IMAGE_BYTES, count)
}

/// Returns the state after a crash during random operations of every kind.
fn crashed(seed: u64) -> Left {
    let sim = Sim::new(seed);
    let mut random = random(seed);
    let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
    for run in 0..2 {
        sim.block_on(async {
            let engine = start(&media, &tight()).await;
            for number in 0..random.random_range(500..6000) {
                let now = runtime::unix_seconds();
                let key = numbered(random.random_range(0..4000));
                let key = engine.key(&key).unwrap();
                match random.random_range(0..1000) {
                    0..100 => {
                        engine.remove(key, now).await.unwrap();
                    }
                    100 if run == 1 => {
                        engine.flush_all(now + random.random_range(0..3)).await;
                        runtime::sleep(Duration::from_secs(1)).await;
                    }
                    101 => {
                        engine.checkpoint_now().await;
                    }
                    other => {
                        let put = Put {
                            value: value(number, any_len(&mut random, 20_000)).into(),
                            expiry: if other < 200 { now + 1 } else { 0 },
                            ..Put::default()
                        };
                        // A set may be refused for lack of space.
                        let _ = engine.set(key, now, &put).await;
                    }
                }
            }
        });
        sim.crash();
    }
    Left::of(&disk, &media)
}

#[test]
fn what_a_stop_leaves_is_all_there() {
    let inspection = sound(&stopped(500));
    assert_eq!(inspection.outlook, WARM);
    let items = ItemCounts {
        listed: 500,
        alive: 500,
        ..inspection.items
    };
    assert_eq!(inspection.items, items);
    assert!((500 * 3000..=500 * 4096).contains(&items.alive_bytes));
    assert_eq!(inspection.journal.state, JournalState::Usable);
    let checkpoint = inspection.checkpoint.unwrap();
    assert_eq!(
        checkpoint.contents.unwrap().living,
        inspection.segments.living
    );
    assert_eq!(
        inspection.segments.checkpoint,
        checkpoint.segments.len() as u64
    );
    assert!(inspection.segments.free > 0);
}

/// The main result: the items reported as alive are those that the next start puts into its index.
#[test]
fn what_is_alive_is_what_the_next_start_finds() {
    for_each_seed("what_is_alive_is_what_the_next_start_finds", 12, |seed| {
        let left = crashed(seed);
        let inspection = sound(&left);
        assert_eq!(inspection.outlook, CRASHED);
        let recovered = simulate(2, async {
            let engine = start(&left.media().1, &tight()).await;
            engine.recovery()
        });
        assert_eq!(inspection.segments.living, recovered.segments);
        assert_eq!(inspection.items.alive, recovered.items);
        let listed = recovered.items + recovered.items_dead;
        assert_eq!(inspection.items.listed, listed);
        // With memory for a few items at a time the report is the same.
        let few = simulate(3, async {
            let options = InspectOptions {
                verify: false,
                memory_bytes: 100 * inspect::ITEM_BYTES,
            };
            inspect_media(&left.media().1, options).await.unwrap()
        });
        assert_eq!(few.items, inspection.items);
    });
}

#[test]
fn a_damaged_item_is_found_where_it_lies() {
    let mut left = stopped(300);
    let segment = 1;
    // The third item of 3 KB; each has a page of its own.
    let offset = 2 * 4096;
    let at = META_BYTES + segment * u64::from(SEGMENT_BYTES) + offset;
    left.image.flip_bit(at + 500, 3);
    assert!(
        inspect_left(&left, false).unwrap().is_sound(),
        "not looked at"
    );
    let inspection = inspect_left(&left, true).unwrap();
    assert!(!inspection.is_sound() && !inspection.is_changing);
    let place = FlawedPlace {
        segment: 1,
        offset: offset as u32,
        flaw: Flaw::Item(FormatError::Checksum),
    };
    assert_eq!(inspection.flaws, [place]);
    let verified = inspection.verified.unwrap();
    assert_eq!((verified.items_sound, verified.items_corrupt), (299, 1));
}

#[test]
fn a_damaged_summary_is_found_without_reading_items() {
    let mut left = stopped(300);
    let footer = META_BYTES + u64::from(SEGMENT_BYTES) - 64;
    left.image.flip_bit(footer - 20, 0);
    for verify in [false, true] {
        let inspection = inspect_left(&left, verify).unwrap();
        assert!(!inspection.is_sound());
        assert_eq!(inspection.flaw_count, 1);
        assert_eq!(inspection.flaws[0].segment, 0);
        let flaw = Flaw::Summary(FormatError::Checksum);
        assert_eq!(inspection.flaws[0].flaw, flaw);
        let items = inspection.items;
        assert_eq!(items.unreadable + items.alive, 300);
        assert!(items.unreadable > 0);
    }
}

#[test]
fn what_cannot_be_found_again_says_why() {
    let left = stopped(300);
    let mut lost = left.clone();
    lost.words.fill(0);
    let inspection = inspect_left(&lost, true).unwrap();
    let blank = Unusable::Blank;
    assert_eq!(inspection.outlook, Outlook::Empty(Distrust::Journal(blank)));
    assert_eq!(inspection.journal.state, JournalState::Unusable(blank));
    assert!(inspection.segments.distrusted > 0 && !inspection.is_sound());
    assert_eq!(inspection.items, ItemCounts::default());
    assert_adds_up(&inspection);
    let no_journal = simulate(1, async {
        let media = left.media().1;
        let options = InspectOptions::default();
        inspect::inspect(&media.disk, None, options, &mut |_| {})
            .await
            .unwrap()
    });
    let missing = Distrust::Journal(Unusable::Missing);
    assert_eq!(no_journal.outlook, Outlook::Empty(missing));

    let mut foreign = left.clone();
    foreign.words[0] = 77;
    let inspection = inspect_left(&foreign, false).unwrap();
    assert_eq!(inspection.outlook, Outlook::Refused(JournalError::Foreign));
    let mut short = left.clone();
    short.words.truncate(5);
    let inspection = inspect_left(&short, false).unwrap();
    let refused = Outlook::Refused(JournalError::TooShort {
        words: 5,
        needed: 512 + 8 * 1024,
    });
    assert_eq!(inspection.outlook, refused);

    let mut torn = left.clone();
    let inspection = inspect_left(&left, false).unwrap();
    let segment = u64::from(inspection.checkpoint.unwrap().segments[0].0);
    let at = META_BYTES + segment * u64::from(SEGMENT_BYTES);
    torn.image.flip_bit(at + 9, 1);
    let inspection = inspect_left(&torn, true).unwrap();
    assert_eq!(inspection.outlook, Outlook::Empty(Distrust::Checkpoint));
    assert!(inspection.checkpoint.unwrap().contents.is_err());
}

#[test]
fn one_superblock_of_two_will_do() {
    let mut left = stopped(30);
    let newest = left.image.clone();
    left.image.flip_bit(2000, 1);
    let inspection = sound(&left);
    let damaged = SuperblockCopy::Invalid(FormatError::Checksum);
    assert!(inspection.copies.contains(&damaged));
    left.image = newest;
    left.image.flip_bit(META_BYTES / 2 + 2000, 1);
    assert!(sound(&left).copies.contains(&damaged));
}

#[test]
fn what_is_no_image_is_refused() {
    let left = stopped(10);
    let refusal = |image: &Image| {
        let left = Left {
            image: image.clone(),
            words: left.words.clone(),
        };
        inspect_left(&left, true).expect_err("a refusal")
    };
    let blank = Image::new(IMAGE_BYTES);
    assert!(matches!(refusal(&blank), InspectError::Nothing));
    assert!(matches!(refusal(&Image::new(8192)), InspectError::Foreign));
    let mut foreign = Image::new(IMAGE_BYTES);
    foreign.write(0, b"somebody's letters");
    assert!(matches!(refusal(&foreign), InspectError::Foreign));
    let changed = |change: &dyn Fn(&mut Image, u64)| {
        let mut image = left.image.clone();
        for at in [0, META_BYTES / 2] {
            change(&mut image, at);
        }
        image
    };
    let newer = changed(&|image, at| image.write(at + 8, &[77]));
    let expected = InspectError::Version {
        found: 77,
        expected: IMAGE_FORMAT,
    };
    assert_eq!(refusal(&newer).to_string(), expected.to_string());
    let damaged = changed(&|image, at| image.flip_bit(at + 3000, 2));
    assert!(matches!(refusal(&damaged), InspectError::Damaged));
    let mut bytes = vec![0; (IMAGE_BYTES / 2) as usize];
    left.image.read(0, &mut bytes);
    let mut half = Image::new(IMAGE_BYTES / 2);
    half.write(0, &bytes);
    assert!(matches!(refusal(&half), InspectError::Truncated { .. }));
    let shape = ImageShape {
        image_id: 1,
        hash_seed: HashSeed::new(2),
        image_bytes: IMAGE_BYTES,
        segment_bytes: SEGMENT_BYTES,
        segments: 100,
        channels: 1,
        partitions: 4,
        expected_items: 1000,
        index_region: IndexRegion::None,
    };
    let mut other = Image::new(IMAGE_BYTES);
    other.write(0, &Superblock::new(&shape, "tiered").encode());
    assert!(matches!(refusal(&other), InspectError::Placement { .. }));
}

#[test]
fn a_segment_that_cannot_be_read_is_told() {
    let left = stopped(300);
    let faulty = Arc::new(FaultyDisk::from_image(
        left.image.clone(),
        Latency::default(),
        1,
    ));
    let footer = META_BYTES + u64::from(SEGMENT_BYTES) - 4096;
    simulate(1, async {
        let media = Media::with_words(faulty.clone(), left.words.clone());
        let bad = When::every(Operation::Read).within(footer..footer + 4096);
        faulty.script(bad, Fault::Error);
        let inspection = inspect_media(&media, InspectOptions::default())
            .await
            .unwrap();
        assert_eq!(inspection.segments.unreadable, 1);
        assert!(!inspection.is_sound());
        assert_adds_up(&inspection);
    });
}

/// A disk with slow reads.
struct SlowReads(Arc<dyn Disk>, Duration);

impl Disk for SlowReads {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }

    fn read(&self, offset: u64, buf: AlignedBuf) -> IoFuture<'_, AlignedBuf> {
        Box::pin(async move {
            runtime::sleep(self.1).await;
            self.0.read(offset, buf).await
        })
    }

    fn write(&self, _offset: u64, _data: SharedBuf) -> IoFuture<'_, ()> {
        unreachable!("it is only looked at")
    }

    fn discard(&self, _offset: u64, _len: u64) -> IoFuture<'_, ()> {
        unreachable!("it is only looked at")
    }

    fn sync(&self) -> IoFuture<'_, ()> {
        unreachable!("it is only looked at")
    }
}

/// Inspects beside a cache that writes, reclaims and makes checkpoints as fast as it can.
#[test]
fn a_running_cache_is_never_said_to_be_damaged() {
    let (looks, changing, left_out) = (Cell::new(0), Cell::new(0), Cell::new(0));
    for_each_seed("a_running_cache_is_never_said_to_be_damaged", 6, |seed| {
        simulate(seed, async {
            let latency = Latency {
                read: Duration::from_micros(800),
                write: Duration::from_micros(300),
                sync: Duration::from_micros(500),
            };
            let disk = Arc::new(MemoryDisk::with_latency(17 << 20, latency));
            let media = Media::new(disk as Arc<dyn Disk>);
            let engine = start(&media, &tight()).await;
            let is_done = Arc::new(AtomicBool::new(false));
            let (writer, done) = (Arc::clone(&engine), Arc::clone(&is_done));
            runtime::spawn(async move {
                let mut random = random(seed);
                for number in 0..40_000 {
                    let key = numbered(random.random_range(0..20_000));
                    // A set may be refused for lack of space.
                    let _ = set(&writer, &key, &value(number, 3000)).await;
                    if random.random_range(0..6000) == 0 {
                        writer.checkpoint_now().await;
                    }
                    if number % 50 == 0 {
                        runtime::sleep(Duration::from_millis(2)).await;
                    }
                }
                done.store(true, Ordering::Release);
            });
            let mut delays = random(seed);
            while !is_done.load(Ordering::Acquire) {
                let delay = Duration::from_millis([0, 1, 4, 50][delays.random_range(0..4)]);
                let options = InspectOptions {
                    verify: delay < Duration::from_millis(50),
                    ..InspectOptions::default()
                };
                let slow = Media {
                    disk: Arc::new(SlowReads(Arc::clone(&media.disk), delay)),
                    journal: Arc::clone(&media.journal),
                    placement: None,
                };
                let inspection = match inspect_media(&slow, options).await {
                    Err(InspectError::Busy) => continue,
                    inspected => inspected.unwrap(),
                };
                assert_eq!(inspection.flaws, []);
                assert!(inspection.is_sound(), "{:?}", inspection.outlook);
                looks.set(looks.get() + 1);
                changing.set(changing.get() + u32::from(inspection.is_changing));
                left_out.set(left_out.get() + inspection.segments_changed);
            }
        });
    });
    let (looks, changing, left_out) = (looks.get(), changing.get(), left_out.get());
    assert!(changing > looks / 4, "{changing} of {looks}");
    assert!(left_out > 0, "no segment was ever written again meanwhile");
}
