//! Clients of the simulated cache: random changes and reads, each checked by the history.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Operation, When};
use engine::config::META_BYTES;
use engine::{Amend, Change, Engine, ItemView, Lookup, Peek, Put};
use parking_lot::{Mutex, MutexGuard};
use rand::Rng;
use rand::rngs::SmallRng;

use super::media::Media;
use super::plan::{Plan, SLOWEST_SUPERBLOCK};
use super::watch::{Watch, lost, may_lack_items, refused};
use crate::values::{key_bytes, tag_of, value_of};
use engine::history::{Asked, Effect, Found, History, Seen, Wrong};

/// An effect that explains nothing: no write has its tag.
const NOTHING: Effect = Effect::Value { tag: 0, expiry: 0 };
/// Longest delay of a flush, in seconds.
const MAX_DELAY_SECONDS: u32 = 4;

/// State shared by all clients.
pub(super) struct World {
    pub(super) engine: Arc<Engine>,
    pub(super) media: Arc<Media>,
    pub(super) history: Arc<Mutex<History>>,
    pub(super) wrong: Arc<Mutex<Option<Wrong>>>,
    pub(super) plan: Plan,
    pub(super) next_tag: AtomicU64,
}

pub(super) async fn client(world: Arc<World>, watch: Arc<Watch>, mut random: SmallRng) {
    for _ in 0..world.plan.operations {
        if world.wrong.lock().is_some() || world.media.is_worn_out() {
            return;
        }
        if random.random_range(0..1000) < world.plan.sets {
            let (number, _) = world.any_key(&mut random);
            world.set(number, &mut random).await;
        } else {
            world.something_else(&watch, &mut random).await;
        }
        watch.at_operation();
    }
}

impl World {
    async fn something_else(&self, watch: &Watch, random: &mut SmallRng) {
        match random.random_range(0..1200) {
            0..600 => self.get(random).await,
            600..800 => self.delete(random).await,
            800..960 => self.touch(random).await,
            960..1120 => self.rewrite(random).await,
            1120..1123 => self.flush(random).await,
            1123..1130 => {
                self.engine.checkpoint_now().await;
            }
            1130..1136 => {
                // The delay soon suffices for the segment to be reclaimed and rewritten during the read.
                let by = Duration::from_millis(random.random_range(1..600));
                self.media.slow_read(by);
            }
            1136..1138 => {
                let most = SLOWEST_SUPERBLOCK.as_millis() as u64;
                let by = Duration::from_millis(random.random_range(1..most));
                let superblock = When::next(Operation::Write).within(0..META_BYTES);
                self.media.slow_disk(superblock, by);
            }
            1190..1192 => self.sync(watch).await,
            1138 => runtime::sleep(self.plan.pause * random.random_range(2..38)).await,
            1139..1150 => {
                runtime::sleep(self.plan.pause.mul_f64(random.random())).await;
            }
            _ => runtime::sleep(Duration::from_micros(random.random_range(1..3000))).await,
        }
    }

    fn any_key(&self, random: &mut SmallRng) -> (u64, Vec<u8>) {
        // Half of the operations use one eighth of the keys.
        let keys = self.plan.keys / if random.random() { 8 } else { 1 };
        let number = random.random_range(0..keys.max(1));
        (number, key_bytes(number))
    }

    /// Requests a change of a key to a random value. Returns the request, its effect and the item.
    fn ask_put(&self, number: u64, random: &mut SmallRng) -> (Asked, Effect, Put<'static>) {
        let tag = self.next_tag.fetch_add(1, Ordering::Relaxed);
        let expiry = any_expiry(random);
        let effect = Effect::Value { tag, expiry };
        let asked = self.history().ask(number, effect);
        let put = Put {
            value: Cow::Owned(value_of(tag, self.plan.any_len(random))),
            expiry,
            ..Put::default()
        };
        (asked, effect, put)
    }

    /// Returns the history, moved to the present second.
    fn history(&self) -> MutexGuard<'_, History> {
        let mut history = self.history.lock();
        history.pass(runtime::unix_seconds());
        history
    }

    fn judge(&self, checked: Result<(), Wrong>) {
        if let Err(wrong) = checked {
            self.wrong.lock().get_or_insert(wrong);
        }
    }

    fn answer(&self, asked: Asked, effect: Option<Effect>) {
        let nanos = runtime::now().as_nanos();
        self.history().answer(asked, effect, nanos);
    }

    /// Records a change that was refused: it has removed the old value if the journal had space.
    fn refused(&self, asked: Asked) {
        self.history().foresee(asked, Effect::Gone);
    }

    /// Records the answer to a write that told its CAS unique.
    fn answer_unique(&self, asked: Asked, effect: Effect, unique: u64) {
        self.answer(asked, Some(effect));
        let told = self.history().told(asked, unique);
        self.judge(told);
    }

    /// Checks the item that a change requested at second `now` found.
    fn judge_found(&self, asked: Asked, found: &ItemView<'_>, now: u32) {
        let checked = self
            .history()
            .check_before(asked, view(found, now).map(Some));
        self.judge(checked);
    }

    /// Stores a random value.
    pub(super) async fn set(&self, number: u64, random: &mut SmallRng) {
        let (asked, effect, put) = self.ask_put(number, random);
        let bytes = key_bytes(number);
        let key = self.engine.key(&bytes).expect("a key");
        match self.engine.set(key, runtime::unix_seconds(), &put).await {
            Ok(unique) => self.answer_unique(asked, effect, unique),
            Err(_) => self.refused(asked),
        }
    }

    async fn get(&self, random: &mut SmallRng) {
        let (number, bytes) = self.any_key(random);
        let asked = self.history().tick();
        let found = read(&self.engine, &bytes).await;
        let checked = self.history().check(number, asked, found);
        self.judge(checked);
    }

    async fn delete(&self, random: &mut SmallRng) {
        let (number, bytes) = self.any_key(random);
        let asked = self.history().ask(number, Effect::Gone);
        let key = self.engine.key(&bytes).expect("a key");
        let now = runtime::unix_seconds();
        let removed = if random.random() {
            self.engine.remove(key, now).await
        } else {
            let removed = self
                .engine
                .modify(key, now, |found| {
                    if let Some(found) = found {
                        self.judge_found(asked, found, now);
                    }
                    (Change::Remove, ())
                })
                .await;
            removed.map(drop)
        };
        match removed {
            Ok(()) => self.answer(asked, Some(Effect::Gone)),
            Err(_) => self.refused(asked),
        }
    }

    async fn touch(&self, random: &mut SmallRng) {
        let (number, bytes) = self.any_key(random);
        let asked = self.history().ask(number, NOTHING);
        let expiry = any_expiry(random);
        let key = self.engine.key(&bytes).expect("a key");
        let now = runtime::unix_seconds();
        let touched = self
            .engine
            .modify(key, now, |found| {
                let Some(found) = found else {
                    return (Change::Keep, None);
                };
                self.judge_found(asked, found, now);
                let amend = Amend {
                    expiry: Some(expiry),
                    ..Amend::default()
                };
                if found.expiry == expiry {
                    // The touch leaves the item as it was: a read. A read may still find items that a crash
                    // left in doubt.
                    return (Change::Amend(amend), None);
                }
                let effect = Effect::Value {
                    tag: tag_of(found.value).unwrap_or(0),
                    expiry,
                };
                self.history().foresee(asked, effect);
                (Change::Amend(amend), Some(effect))
            })
            .await;
        match touched {
            Ok(touched) => self.answer(asked, touched.result),
            Err(_) => self.refused(asked),
        }
    }

    /// Stores a new value if the key has one.
    async fn rewrite(&self, random: &mut SmallRng) {
        let (number, bytes) = self.any_key(random);
        let (asked, effect, put) = self.ask_put(number, random);
        let key = self.engine.key(&bytes).expect("a key");
        let now = runtime::unix_seconds();
        let rewritten = self
            .engine
            .modify(key, now, |found| match found {
                Some(found) => {
                    self.judge_found(asked, found, now);
                    (Change::Put(put.clone()), true)
                }
                None => (Change::Keep, false),
            })
            .await;
        match rewritten {
            Ok(done) if done.result => self.answer_unique(asked, effect, done.cas_unique),
            Ok(_) => self.answer(asked, None),
            Err(_) => self.refused(asked),
        }
    }

    /// Makes a sync. Takes crash points behind it that expect the items present before it.
    pub(super) async fn sync(&self, watch: &Watch) {
        let (mut present, before) = (watch.present(&self.engine), lost(&self.engine));
        let refused_before = refused(&self.engine);
        let asked = self.history().tick();
        let is_durable = self.engine.sync().await.is_ok();
        // A crash loses items that reclaim is moving.
        let is_still = self.engine.store().pool().counts().reclaiming == 0;
        let is_all_there =
            lost(&self.engine) == before && !may_lack_items(&self.plan, &self.engine);
        if !(is_durable && is_still && is_all_there) {
            return;
        }
        if refused(&self.engine) > refused_before {
            // An item that left memory before its turn may have been refused.
            let left: HashSet<(u64, u64)> = watch.present(&self.engine).into_iter().collect();
            present.retain(|item| left.contains(item));
        }
        watch.take_synced(&present, asked);
    }

    async fn flush(&self, random: &mut SmallRng) {
        let now = runtime::unix_seconds();
        if random.random() {
            let asked = self.history().ask_flush();
            self.engine.flush_all(now).await;
            self.answer(asked, Some(Effect::Gone));
        } else {
            let deadline = now + random.random_range(1..MAX_DELAY_SECONDS);
            self.history().ask_flush_at(deadline);
            self.engine.flush_all(deadline).await;
            let nanos = runtime::now().as_nanos();
            self.history().flush_at(deadline, nanos);
        }
    }
}

fn any_expiry(random: &mut SmallRng) -> u32 {
    if random.random_ratio(1, 4) {
        runtime::unix_seconds() + random.random_range(1..10)
    } else {
        0
    }
}

/// Returns the tag and attributes of an item. The error is the tag that a damaged value claims.
fn view(item: &ItemView<'_>, now: u32) -> Result<Seen, u64> {
    match tag_of(item.value) {
        Some(tag) => Ok(Seen {
            tag,
            expiry: Some(item.expiry),
            unique: Some(item.cas_unique),
            now,
        }),
        None => Err(item.value.get(..8).map_or(0, |tag| {
            u64::from_le_bytes(tag.try_into().expect("eight bytes"))
        })),
    }
}

/// Reads a key as a request does. The error is the tag that a damaged value claims.
pub(super) async fn read(engine: &Arc<Engine>, key: &[u8]) -> Found {
    let now = runtime::unix_seconds();
    let key = engine.key(key).expect("a key");
    let show = |item: &ItemView<'_>| view(item, now);
    match engine.lookup(key, now, Peek::No, show) {
        Lookup::Hit(seen) => seen.map(Some),
        Lookup::Miss => Ok(None),
        Lookup::Flash(read) => match engine.read_flash(key, read).await {
            Some(hit) => view(&ItemView::of_flash(&hit), now).map(Some),
            None => Ok(None),
        },
    }
}
