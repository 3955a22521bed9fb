//! Tests of the bar, of applications, and of the memory of a lesson.

use super::*;
use engine::{HashSeed, NamedStats};
use runtime::sim::Sim;

const fn read(reads: u16) -> Features {
    Features {
        reads,
        updates: 0,
        reads_before: 0,
    }
}

/// A learner that watches every key.
fn of_all(learning: Learning) -> Learner {
    let mut learner = Learner::new(learning, 16 << 20, 64 << 20);
    learner.keys = Arc::new(WatchedKeys::one_in(1));
    learner
}

fn stat(learner: &Learner, name: &str) -> u64 {
    let stats = NamedStats::collect(|visit| learner.stats(visit));
    stats.find(name).expect("a statistic")
}

/// Returns the fewest reads, up to 40, with which an item is admitted.
fn least_admitted(learner: &Learner) -> Option<u16> {
    (0..=40).find(|&reads| learner.score_passes(b"any", read(reads)))
}

/// Gives a lesson: keys read `1..=20` times, and only keys read more than 8 times are asked for in the next window.
async fn lesson(learner: &Learner) {
    let keys: Vec<String> = (0..600).map(|number| format!("key{number}")).collect();
    let key = |number: usize| Key::new(keys[number].as_bytes(), HashSeed::new(1)).unwrap();
    let reads = |number: usize| 1 + number as u16 % 20;
    for number in 0..keys.len() {
        assert!(learner.keys.contains(key(number).hash()));
        learner.note(Event::Read(key(number), Some(read(reads(number)))));
    }
    learner.learn().await;
    for number in (0..keys.len()).filter(|&number| reads(number) > 8) {
        learner.note(Event::Read(key(number), None));
    }
    learner.learn().await;
}

/// The items with the lowest scores are held back, in whatever order items come.
#[test]
fn the_bar_rises_while_a_limit_binds_and_falls_when_it_does_not() {
    Sim::new(1).block_on(async {
        let learner = of_all(Learning {
            hits_per_100_writes: 0,
            ..Learning::default()
        });
        assert_eq!(
            least_admitted(&learner),
            Some(1),
            "nothing has been learned"
        );
        lesson(&learner).await;
        let free = least_admitted(&learner).unwrap();
        assert!((6..=12).contains(&free), "{free}");
        let mut last = free;
        for _ in 0..1000 {
            learner.raise_the_bar();
            let Some(least) = least_admitted(&learner) else {
                break;
            };
            assert!(least >= last);
            last = least;
        }
        assert!(last > free + 10, "{last}");
        for _ in 0..1000 * BAR_FALLS_AFTER {
            learner.placed(0);
        }
        assert_eq!(least_admitted(&learner), Some(free));
        assert_eq!(stat(&learner, "score_bar_thousandths"), 0);
    });
}

#[test]
fn the_more_is_written_the_shorter_an_item_stays() {
    Sim::new(1).block_on(async {
        let learner = Learner::new(Learning::default(), 16 << 20, 100);
        let stay = |written| {
            learner.placed(written);
            learner.stay(&mut learner.windows.lock())
        };
        assert_eq!(stay(0), LONGEST_STAY);
        assert_eq!(stay(100), 2.0, "half of it was written in a window");
        assert_eq!(stay(350), 0.5);
    });
}

#[test]
fn applications_are_told_apart_by_what_is_before_the_delimiter() {
    Sim::new(1).block_on(async {
        let of = |delimiter| {
            let learning = Learning {
                delimiter,
                ..Learning::default()
            };
            Learner::new(learning, 16 << 20, 64 << 20)
        };
        let learner = of(Some(b':'));
        let [one, same, other] =
            [&b"a:1"[..], b"a:2:3", b"b:1"].map(|key| learner.application(key));
        assert!(one == same && one != other);
        assert_eq!(learner.application(b"none"), DEFAULT);
        assert_eq!(of(None).application(b"a:1"), DEFAULT);
    });
}

/// For any number of applications memory is reserved in advance, and applications with few samples share a classifier.
#[test]
fn the_largest_applications_have_classifiers_and_all_is_accounted_for() {
    Sim::new(1).block_on(async {
        let learner = of_all(Learning::default());
        let before = learner.memory_bytes();
        assert!(before <= (16 << 20) / MEMORY_SHARE, "{before}");
        let names = (0..200u32).map(|number| match number % 2 {
            0 => format!("large:{number}"),
            _ => format!("small{number}:key"),
        });
        for name in names.collect::<Vec<_>>() {
            let key = Key::new(name.as_bytes(), HashSeed::new(1)).unwrap();
            learner.note(Event::Read(key, Some(read(1))));
        }
        learner.learn().await;
        learner.learn().await;
        assert_eq!(stat(&learner, "applications"), 1);
        assert_eq!(stat(&learner, "samples"), 200);
        assert_eq!(learner.memory_bytes(), before);
    });
}
