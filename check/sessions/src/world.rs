//! The states that each key may be in, as far as the answers so far tell, and the clock by which items expire.

use std::collections::{BTreeMap, HashMap, HashSet};

use protocol::{Command, Limits, Parsed, parse};

use crate::input::CONNECTIONS;
use crate::machine::End;
use crate::model::{Answer, At, Item, LIFE_SLACK, State, Unique, step};

/// Time before a power cut within which changes may be undone, in nanoseconds.
const UNDONE_NANOS: u64 = 400_000_000;
/// Seconds by which the server may not know of time that passed before a crash.
const HEARTBEAT_SECONDS: u32 = 12;
/// Seconds by which a start may be behind the last life and go by its clock all the same.
const KEPT_SECONDS: u32 = 60;
/// Seconds after the last life from which on the clock of a start cannot be right.
const FAR_SECONDS: u32 = 20 * 366 * 24 * 3600;
/// Most states that are looked at for one key in one round.
const MOST_NODES: usize = 50_000;

/// A command of a round on one key.
pub(crate) struct Access<'r> {
    pub(crate) bytes: &'r [u8],
    /// Unix seconds between which the server received it.
    pub(crate) span: (u32, u32),
    pub(crate) answer: Answer<'r>,
    /// Number of the command.
    pub(crate) source: u64,
}

/// The commands of a round on one key, by connection.
pub(crate) type Accesses<'r> = [Vec<Access<'r>>; CONNECTIONS];

/// A key.
#[derive(Default)]
struct Key {
    states: Vec<State>,
    /// States that changes have ended, and when: a power cut may undo a late change.
    ended: Vec<(u64, State)>,
    /// States that the cache has lost by itself: a crash may bring them back.
    lost: Vec<State>,
    /// Losses of the cache when the key was last looked at.
    losses: u64,
    /// Whether a sync has made the state durable.
    is_durable: bool,
}

/// All keys.
pub(crate) struct World {
    keys: BTreeMap<Vec<u8>, Key>,
    pub(crate) life: u32,
    /// Unix second of a delayed `flush_all`.
    pending: Option<u32>,
    /// Items stored up to this Unix second, or in lives up to this one, may have been flushed.
    doubt: Option<(u32, u32)>,
    /// Latest second of the lives since the last step of the clock.
    latest: u32,
    /// Latest second of earlier lives.
    floor: u32,
    /// Whether a life has started with a clock that could not be right.
    has_stepped: bool,
    /// Source of each CAS unique that the server has given.
    uniques: HashMap<u64, u64>,
    max_value_bytes: usize,
    pub(crate) limits: Limits,
}

impl World {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            keys: BTreeMap::new(),
            life: 0,
            pending: None,
            doubt: None,
            latest: 0,
            floor: 0,
            has_stepped: false,
            uniques: HashMap::new(),
            max_value_bytes: limits.max_value_bytes,
            limits,
        }
    }

    /// Notes that the clock shows `now`.
    pub(crate) fn pass(&mut self, now: u32) {
        self.latest = self.latest.max(now);
    }

    /// Returns whether an answer may name an item of `key`.
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        let known = self.keys.get(key);
        known.is_some_and(|key| key.states.iter().any(Option::is_some) || !key.lost.is_empty())
    }

    /// Judges the commands of a round on one key. `losses` counts the losses of the cache before and after the round, and
    /// `is_recovering` says whether items of the life before may still be hidden.
    pub(crate) fn judge(
        &mut self,
        name: &[u8],
        accesses: &Accesses<'_>,
        losses: (u64, u64),
        is_recovering: bool,
        nanos: u64,
    ) -> Result<(), String> {
        let mut key = self.keys.remove(name).unwrap_or_default();
        if key.states.is_empty() {
            key.states.push(None);
        }
        let search = Search {
            world: self,
            name,
            accesses,
            may_vanish: losses.1 > key.losses || is_recovering,
            is_recovering,
        };
        let found = search.run(&key.states)?;
        if found.may_have_written {
            key.is_durable = false;
        }
        if found.has_written {
            let lost = std::mem::take(&mut key.lost);
            key.ended
                .extend(lost.into_iter().map(|state| (nanos, state)));
        }
        let all = accesses.iter().flatten();
        if all
            .clone()
            .any(|access| matches!(access.answer, Answer::Told(_)))
        {
            key.losses = losses.0;
        }
        key.states = found.states;
        for state in found.ended {
            if !found.has_written && !key.lost.contains(&state) {
                key.lost.push(state.clone());
            }
            key.ended.push((nanos, state));
        }
        key.ended
            .retain(|(at, _)| at.saturating_add(UNDONE_NANOS) >= nanos);
        if let [Some(item)] = &key.states[..]
            && let Unique::Told(unique) = item.unique
        {
            let source = *self.uniques.entry(unique).or_insert(item.source);
            if source != item.source {
                return Err(format!(
                    "CAS unique {unique} of {} is another item's too",
                    name.escape_ascii()
                ));
            }
        }
        self.keys.insert(name.to_vec(), key);
        Ok(())
    }

    /// Records that everything answered so far is durable.
    pub(crate) fn synced(&mut self, losses: u64) {
        for key in self.keys.values_mut() {
            key.is_durable = losses == 0;
        }
    }

    /// Records a `flush_all` that was received between the seconds of `span`.
    pub(crate) fn flush(
        &mut self,
        span: (u32, u32),
        flush_at: impl Fn(u32) -> u32,
        is_told: bool,
        nanos: u64,
    ) {
        let (now, deadline) = (span.1, flush_at(span.1));
        let is_clear = is_told && span.0 == span.1;
        if !is_clear {
            let latest = deadline.max(now).max(self.pending.unwrap_or(0));
            self.doubt(latest);
        }
        self.settle_pending(now, nanos);
        let (life, is_older) = (self.life, deadline < now);
        for key in self.keys.values_mut() {
            key.is_durable = false;
            if deadline > now {
                continue;
            }
            let mut states = Vec::new();
            for state in std::mem::take(&mut key.states) {
                let is_newer = |item: &Item| item.life == life && item.stored >= deadline;
                let stays = !is_clear || is_older && state.is_some();
                if stays {
                    states.push(state.clone());
                }
                let is_kept = is_older && state.as_ref().is_some_and(is_newer);
                if !is_kept && !states.contains(&None) {
                    states.push(None);
                }
                if state.is_some() {
                    key.ended.push((nanos, state));
                }
            }
            if states.is_empty() {
                states.push(None);
            }
            key.states = states;
            for lost in std::mem::take(&mut key.lost) {
                key.ended.push((nanos, lost));
            }
        }
        if is_told {
            self.pending = (deadline > now).then_some(deadline);
        }
    }

    /// Leaves it open whether items stored up to `second` have been flushed.
    fn doubt(&mut self, second: u32) {
        let before = self.doubt.map_or(0, |(_, second)| second);
        self.doubt = Some((self.life, before.max(second)));
    }

    /// Ends the items that a delayed `flush_all` has taken by `now`.
    pub(crate) fn settle_pending(&mut self, now: u32, nanos: u64) {
        let Some(deadline) = self.pending.filter(|&deadline| deadline <= now) else {
            return;
        };
        self.pending = None;
        let life = self.life;
        for key in self.keys.values_mut() {
            key.is_durable = false;
            let mut states = Vec::new();
            for state in std::mem::take(&mut key.states) {
                let is_flushed = |item: &Item| item.life != life || item.stored < deadline;
                let next = state.clone().filter(|item| !is_flushed(item));
                if next != state {
                    key.ended.push((nanos, state));
                }
                if !states.contains(&next) {
                    states.push(next);
                }
            }
            key.states = states;
            for lost in std::mem::take(&mut key.lost) {
                key.ended.push((nanos, lost));
            }
        }
    }

    /// Records the end of a life: a crash, or an orderly stop. `losses` counts the losses of the cache in that life.
    pub(crate) fn end(&mut self, end: Option<End>, nanos: u64, losses: u64) {
        let is_cut = end == Some(End::PowerCut);
        let mut has_late_flush = false;
        for key in self.keys.values_mut() {
            let stays = match end {
                None => losses <= key.losses,
                Some(_) => losses == 0 && key.is_durable,
            };
            let mut states = std::mem::take(&mut key.states);
            let lost = std::mem::take(&mut key.lost);
            let ended = std::mem::take(&mut key.ended);
            if !stays {
                states.extend(lost);
                states.push(None);
                if is_cut {
                    let late = ended
                        .into_iter()
                        .filter(|(at, _)| at.saturating_add(UNDONE_NANOS) >= nanos);
                    states.extend(late.map(|(_, state)| state));
                    has_late_flush = true;
                }
            }
            let mut seen = HashSet::new();
            states.retain(|state| seen.insert(state.clone()));
            key.states = states;
            key.losses = 0;
            key.is_durable &= stays;
        }
        if has_late_flush && let Some(pending) = self.pending {
            // Its record may be lost.
            self.doubt(pending.max(self.latest));
            self.pending = None;
        }
        if is_cut {
            let latest = self.latest;
            self.doubt(latest);
        }
    }

    /// Starts another life, whose clock shows `now`. Returns whether that clock cannot be right.
    pub(crate) fn start(&mut self, now: u32) -> bool {
        self.life += 1;
        let is_back = now.saturating_add(KEPT_SECONDS) < self.latest;
        let is_far = now > self.latest.saturating_add(FAR_SECONDS);
        if self.life == 1 || !is_back && !is_far {
            self.floor = self.latest;
            self.latest = self.latest.max(now);
            // A flush comes early if the clock is a little behind the life before. So it may after a step of the clock: any
            // of the clocks may be the one that it was asked for by.
            let floor = if self.has_stepped {
                u32::MAX
            } else {
                self.floor
            };
            if let Some(pending) = self
                .pending
                .take_if(|pending| (now..=floor).contains(pending))
            {
                self.doubt(pending);
            }
            return false;
        }
        self.has_stepped = true;
        let ahead = i64::from(self.latest) - i64::from(now);
        for key in self.keys.values_mut() {
            for item in key.states.iter_mut().flatten() {
                step_clock(item, ahead);
            }
        }
        if let Some(pending) = self.pending.take() {
            let then = i64::from(pending) - ahead.min(0);
            self.doubt(u32::try_from(then).unwrap_or(u32::MAX).max(pending));
        }
        if self.doubt.is_some() {
            self.doubt(now);
        }
        self.floor = now;
        self.latest = now;
        true
    }

    /// Returns a second for the clock of the next start near `now`: one of which it is clear whether it can be right.
    pub(crate) fn clear_second(&self, now: u32) -> u32 {
        let back = self.latest.saturating_sub(now);
        let (least, most) = (
            KEPT_SECONDS - HEARTBEAT_SECONDS,
            KEPT_SECONDS + 2 * HEARTBEAT_SECONDS,
        );
        if (least..=most).contains(&back) {
            self.latest.saturating_sub(5 * KEPT_SECONDS)
        } else {
            now
        }
    }

    /// Returns the states in which a command at `now` may find a key in `state`.
    fn resolve(&self, state: &State, now: u32, may_vanish: bool) -> Vec<State> {
        let Some(item) = state else {
            return vec![None];
        };
        let is_old = item.life != self.life;
        let is_flushed = self
            .pending
            .is_some_and(|deadline| deadline <= now && (is_old || item.stored < deadline));
        let in_doubt = self
            .doubt
            .is_some_and(|(life, second)| item.life < life || item.stored <= second);
        let (early, late) = item.slack;
        let is_expired = item.expiry != 0 && item.expiry.saturating_add(late) <= now;
        let by = if is_old {
            now.max(self.floor).saturating_add(1)
        } else {
            now
        };
        let may_expire = item.expiry != 0 && item.expiry.saturating_sub(early) <= by;
        if is_flushed || is_expired {
            return vec![None];
        }
        if in_doubt || may_expire || may_vanish {
            return vec![state.clone(), None];
        }
        vec![state.clone()]
    }
}

/// Moves an item of an earlier clock to the present one, which is behind it by `ahead` seconds.
fn step_clock(item: &mut Item, ahead: i64) {
    if item.expiry == 0 {
        return;
    }
    let expiry = i64::from(item.expiry) - ahead;
    item.expiry = u32::try_from(expiry.max(1)).unwrap_or(u32::MAX);
    let (early, late) = item.slack;
    item.slack = (
        // By a third step the server goes by the later one of two clocks.
        if early > LIFE_SLACK {
            u32::MAX
        } else {
            early + LIFE_SLACK
        },
        late.saturating_add(HEARTBEAT_SECONDS + 1),
    );
}

/// A search for an order of commands that explains their answers.
struct Search<'s> {
    world: &'s World,
    name: &'s [u8],
    accesses: &'s Accesses<'s>,
    may_vanish: bool,
    is_recovering: bool,
}

struct Found {
    states: Vec<State>,
    /// Items before and on the way.
    ended: Vec<State>,
    /// Whether a command has written, in all orders or in one.
    has_written: bool,
    may_have_written: bool,
}

/// Number of executed commands of each connection, the state after them, and whether they have written.
type Node = ([u8; CONNECTIONS], State, bool);

impl Search<'_> {
    fn run(&self, from: &[State]) -> Result<Found, String> {
        let mut seen: HashSet<Node> = HashSet::new();
        let mut open: Vec<Node> = Vec::new();
        for state in from {
            let node = ([0; CONNECTIONS], state.clone(), false);
            if seen.insert(node.clone()) {
                open.push(node);
            }
        }
        let mut states = Vec::new();
        let (mut has_written, mut may_have_written) = (true, false);
        while let Some((at, state, wrote)) = open.pop() {
            assert!(seen.len() < MOST_NODES, "rounds are small");
            if self.is_end(at) {
                has_written &= wrote;
                may_have_written |= wrote;
                if !states.contains(&state) {
                    states.push(state.clone());
                }
            }
            for connection in 0..CONNECTIONS {
                let Some(access) = self.accesses[connection].get(usize::from(at[connection]))
                else {
                    continue;
                };
                let mut next_at = at;
                next_at[connection] += 1;
                for (next, writes) in self.after(&state, access) {
                    let node = (next_at, next, wrote || writes);
                    if seen.insert(node.clone()) {
                        open.push(node);
                    }
                }
            }
        }
        if states.is_empty() {
            return Err(self.describe(from));
        }
        let ended = seen
            .into_iter()
            .map(|(_, state, _)| state)
            .filter(|state| state.is_some() && !states.contains(state));
        let ended: HashSet<State> = ended.collect();
        let mut ended: Vec<State> = ended.into_iter().collect();
        ended.sort_by_key(|state| state.as_ref().map(|item| (item.source, item.expiry)));
        Ok(Found {
            states,
            ended,
            has_written,
            may_have_written,
        })
    }

    /// Returns whether all commands with an answer have been executed.
    fn is_end(&self, at: [u8; CONNECTIONS]) -> bool {
        let rest = |connection: usize| &self.accesses[connection][usize::from(at[connection])..];
        (0..CONNECTIONS).all(|connection| {
            let mut rest = rest(connection).iter();
            rest.all(|access| matches!(access.answer, Answer::None))
        })
    }

    /// Returns the states that a command may leave, each with whether the command has written.
    fn after(&self, state: &State, access: &Access<'_>) -> Vec<(State, bool)> {
        let mut all = Vec::new();
        for now in access.span.0..=access.span.1.min(access.span.0 + 30) {
            let at = At {
                now,
                life: self.world.life,
                source: access.source,
                max_value_bytes: self.world.max_value_bytes,
            };
            for found in self.world.resolve(state, now, self.may_vanish) {
                let is_hidden = self.is_recovering && found.is_none() && state.is_some();
                for next in self.execute(&found, access, at) {
                    let removes = removes(access.bytes, &self.world.limits);
                    let writes = removes || !is_same(&found, &next);
                    // A command that finds nothing and changes nothing leaves a hidden item.
                    let next = match next {
                        None if is_hidden && !removes => state.clone(),
                        next => next,
                    };
                    if !all.contains(&(next.clone(), writes)) {
                        all.push((next, writes));
                    }
                }
            }
        }
        all
    }

    fn execute(&self, found: &State, access: &Access<'_>, at: At) -> Vec<State> {
        match parse(access.bytes, &self.world.limits) {
            Parsed::Command { command, .. } => step(found, &command, self.name, at, access.answer),
            Parsed::Refused(refused) => match access.answer {
                Answer::Told(told) if !refused.quiet && told != refused.reply.as_bytes() => {
                    Vec::new()
                }
                Answer::Told(told) if refused.quiet && !told.is_empty() => Vec::new(),
                _ => vec![None],
            },
            _ => vec![found.clone()],
        }
    }

    fn describe(&self, from: &[State]) -> String {
        let mut lines = vec![format!(
            "key {}: no order of the commands explains their answers; before: {from:?}",
            self.name.escape_ascii()
        )];
        for (connection, accesses) in self.accesses.iter().enumerate() {
            for access in accesses {
                let answer = match access.answer {
                    Answer::Told(told) => shown(told),
                    Answer::None => "(none)".to_owned(),
                };
                lines.push(format!(
                    "  connection {connection} at {:?}: {} -> {answer}",
                    access.span,
                    shown(access.bytes),
                ));
            }
        }
        lines.join("\n")
    }
}

/// Returns whether two states differ at most in marks that a read sets.
fn is_same(one: &State, other: &State) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            let read = Item {
                is_read: other.is_read,
                unique: other.unique,
                ..one.clone()
            };
            read == *other
        }
        (one, other) => one == other,
    }
}

/// Returns whether a command removes an item that it does not find.
fn removes(bytes: &[u8], limits: &Limits) -> bool {
    use protocol::MetaCommand;
    match parse(bytes, limits) {
        Parsed::Command { command, .. } => matches!(
            command,
            Command::Delete { .. } | Command::Meta(MetaCommand::Delete(_))
        ),
        Parsed::Refused(_) => true,
        _ => false,
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = bytes[..bytes.len().min(160)].escape_ascii();
    format!("{text} ({} bytes)", bytes.len())
}
