//! Lives of a structure on the same drives, each ended by a kill or a power cut at a random moment.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use runtime::sim::Sim;

use super::hardware::Hardware;
use super::structure::Settings;

/// Number of lives of a test.
const LIVES: u64 = 5;

/// A life, from 0 on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) number: u64,
    /// Whether the power has stayed on since the life before.
    pub(crate) has_power: bool,
}

/// Crashes in either way. Returns the hardware afterwards, and whether the power stayed on.
pub(crate) fn crashed(hardware: &Hardware, sim: Sim, random: &mut SmallRng) -> (Hardware, bool) {
    let is_killed = random.random_bool(0.5);
    let left = match is_killed {
        true => hardware.killed(random.random()),
        false => hardware.without_power(random.random()),
    };
    sim.crash();
    (Hardware::of(left, random.random()), is_killed)
}

/// Runs several lives. `live` gets the structure, which has just been created or opened, and its life ends when it returns.
pub(crate) fn live_and_crash<T: Settings>(
    settings: &T,
    drives: usize,
    seed: u64,
    mut live: impl AsyncFnMut(T::Structure, &Hardware, Life, &mut SmallRng),
) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut hardware = Hardware::new(settings, drives, seed);
    let mut has_power = true;
    for number in 0..LIVES {
        // Starts that crash themselves. A power cut may take stores that an earlier kill has left in the page cache.
        while number > 0 && random.random_bool(0.4) {
            let sim = Sim::new(random.random());
            let limit = Duration::from_micros(random.random_range(1..5_000));
            sim.block_on(async {
                let _ = runtime::timeout(limit, hardware.open(settings)).await;
            });
            let is_killed;
            (hardware, is_killed) = crashed(&hardware, sim, &mut random);
            has_power &= is_killed;
        }
        let sim = Sim::new(random.random());
        sim.block_on(async {
            let structure = match number {
                0 => hardware.create(settings).await,
                _ => hardware.open(settings).await,
            };
            let structure =
                structure.unwrap_or_else(|error| panic!("seed {seed}, life {number}: {error}"));
            let life = Life { number, has_power };
            live(structure, &hardware, life, &mut random).await;
        });
        (hardware, has_power) = crashed(&hardware, sim, &mut random);
    }
}
