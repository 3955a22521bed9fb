//! A run: the steps of an input, over the lives of one cache.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use device::Latency;
use engine::config::META_BYTES;
use engine::{Engine, EngineConfig, Opening, Start, Stop};
use futures_util::future::{Either, join_all, select};
use protocol::Limits;
use runtime::sim::Sim;
use server::Simulated;
use server::config::{Config, Size};

use crate::client::{Client, Sent};
use crate::input::{self, CONNECTIONS, Call, End as After, Settings, Step};
use crate::machine::{End, JOURNAL_WORDS, Left, Machine, WatchedDisk};
use crate::round::{self, Facts};
use crate::world::World;

/// Longest wait for the answers of a round.
const PATIENCE: Duration = Duration::from_secs(300);
/// Commands on one key that several connections may have under way together.
const MOST_TOGETHER: usize = 6;
/// Commands of a round.
const MOST_IN_A_ROUND: usize = 60;
/// Bytes of the engine's memory.
const MEMORY_BYTES: u64 = 16 << 20;
/// Bytes of the largest value.
const MAX_VALUE_BYTES: u32 = 20_000;

/// Events of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Commands answered.
    pub commands: u64,
    /// Orderly restarts.
    pub restarts: u64,
    /// Crashes.
    pub crashes: u64,
    /// Starts whose clock could not be right.
    pub wrong_clocks: u64,
    /// Reads that flash answered.
    pub flash_hits: u64,
    /// Segments reclaimed.
    pub reclaimed: u64,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, more: Self) {
        self.commands += more.commands;
        self.restarts += more.restarts;
        self.crashes += more.crashes;
        self.wrong_clocks += more.wrong_clocks;
        self.flash_hits += more.flash_hits;
        self.reclaimed += more.reclaimed;
    }
}

/// Runs an input.
///
/// # Errors
/// The first thing found wrong.
pub fn run(input: &[u8]) -> Result<Report, String> {
    let limits = Limits::new(MAX_VALUE_BYTES as usize);
    let Some((settings, steps)) = input::read(input, &limits) else {
        return Ok(Report::default());
    };
    let sim = Sim::new(u64::from(settings.seed));
    let mut run = Run {
        settings,
        world: World::new(limits),
        report: Report::default(),
        left: Left::new(image_bytes(settings)),
        armed: None,
        clock: 0,
        next_source: 0,
        lives: Vec::new(),
        is_known: false,
        is_orderly: false,
    };
    let mut steps = steps.into_iter().peekable();
    loop {
        let mut engine = None;
        let end = sim
            .block_on(run.live(&mut steps, &mut engine))
            .map_err(|wrong| format!("{wrong}\n  lives: {}", run.lives.join("; ")))?;
        sim.crash();
        let weak = engine.take().map(|engine| Arc::downgrade(&engine));
        if weak.is_some_and(|engine| engine.upgrade().is_some()) {
            return Err("something holds the engine after its end".to_owned());
        }
        let Some(clock) = end else {
            return Ok(run.report);
        };
        let now = sim.block_on(async { runtime::unix_seconds() });
        sim.crash();
        let then = i64::from(now) + clock_step(clock);
        let then = u32::try_from(then).unwrap_or(now).max(1_000_000_000);
        let then = run.world.clear_second(then);
        sim.shift_wall_clock(i64::from(then) - i64::from(now));
    }
}

/// Returns the seconds by which the wall clock steps.
fn clock_step(byte: u8) -> i64 {
    const YEAR: i64 = 365 * 24 * 3600;
    [
        0,
        0,
        0,
        1,
        5,
        -5,
        -30,
        70,
        3600,
        -3600,
        7200,
        -86_400,
        86_400,
        40 * 86_400,
        25 * YEAR,
        -25 * YEAR,
    ][usize::from(byte % 16)]
}

fn time_step(byte: u8) -> Duration {
    let millis = [
        1, 10, 100, 300, 1_000, 1_000, 2_000, 3_000, 10_000, 70_000, 200_000,
    ][usize::from(byte % 11)];
    Duration::from_millis(millis)
}

fn image_bytes(settings: Settings) -> u64 {
    let segments = match settings.shape / 4 % 4 {
        0 => 24,
        1 => 32,
        2 => 60,
        _ => 200,
    };
    META_BYTES + segments * segment_bytes(settings)
}

fn segment_bytes(settings: Settings) -> u64 {
    if (settings.shape / 16).is_multiple_of(2) {
        64 << 10
    } else {
        128 << 10
    }
}

fn engine_config(settings: Settings) -> EngineConfig {
    let mut config = EngineConfig {
        memory_bytes: MEMORY_BYTES,
        segment_bytes: Some(segment_bytes(settings) as u32),
        partition_bits: u32::from(settings.shape % 4),
        max_value_bytes: MAX_VALUE_BYTES,
        write_back: [
            None,
            Some(Duration::from_millis(500)),
            Some(Duration::from_secs(5)),
            Some(Duration::from_secs(60)),
        ][usize::from(settings.shape / 32 % 4)],
        ..EngineConfig::default()
    };
    config.index.percent = 10;
    config.writing.discard = settings.shape >= 128;
    config
}

/// Returns a count that grows with every item, segment or mapping that the cache loses by itself.
fn losses(engine: &Engine) -> u64 {
    let stats = engine.stats();
    let placement = stats.placement;
    stats.paths.failed_reads
        + placement.items_evicted
        + placement.items_lost
        + placement.index_full
        + placement.segments_reclaimed
        + engine.index_stats().mappings_dropped()
        + engine.recovery().items_unnamed
}

struct Run {
    settings: Settings,
    world: World,
    report: Report,
    left: Left,
    armed: Option<(End, u32)>,
    /// Byte of the step of the clock after that crash.
    clock: u8,
    next_source: u64,
    /// Starts and ends, for the message of a failure.
    lives: Vec<String>,
    /// Whether the image has been opened.
    is_known: bool,
    /// Whether the last life ended orderly.
    is_orderly: bool,
}

type Steps = std::iter::Peekable<std::vec::IntoIter<Step>>;

/// A running server.
struct Life {
    machine: Arc<Machine>,
    engine: Arc<Engine>,
    server: Simulated,
    clients: Vec<Option<Client>>,
    pending: Vec<Vec<Sent>>,
}

/// Reason why a step does not go on.
enum Halt {
    /// An answer is wrong, or something else.
    Wrong(String),
    /// The machine has crashed.
    Crashed,
}

impl From<String> for Halt {
    fn from(wrong: String) -> Self {
        Self::Wrong(wrong)
    }
}

/// Awaits `work` unless the machine crashes before.
async fn unless_crashed<T>(machine: &Machine, work: impl Future<Output = T>) -> Result<T, Halt> {
    let (work, crashed) = (std::pin::pin!(work), std::pin::pin!(machine.crashed()));
    match select(crashed, work).await {
        Either::Left(_) => Err(Halt::Crashed),
        Either::Right(_) if machine.is_crashed() => Err(Halt::Crashed),
        Either::Right((done, _)) => Ok(done),
    }
}

impl Run {
    /// Lives once. Returns the byte for the step of the clock to the next life, or `None` at the end of the input.
    async fn live(
        &mut self,
        steps: &mut Steps,
        kept: &mut Option<Arc<Engine>>,
    ) -> Result<Option<u8>, String> {
        let latency = match self.settings.latency % 4 {
            0 => Latency::default(),
            1 => Latency {
                read: Duration::from_micros(90),
                write: Duration::from_micros(30),
                sync: Duration::from_micros(500),
            },
            2 => Latency {
                read: Duration::from_millis(3),
                write: Duration::from_millis(9),
                sync: Duration::from_millis(2),
            },
            _ => Latency {
                read: Duration::from_millis(40),
                write: Duration::from_micros(300),
                sync: Duration::ZERO,
            },
        };
        let seed = runtime::random_u64();
        let left = self.left.clone();
        let machine = Machine::new(left, latency, seed, self.armed.take());
        if self.world.start(runtime::unix_seconds()) {
            self.report.wrong_clocks += 1;
        }
        let opening = Box::pin(self.open(&machine));
        let Ok(opened) = unless_crashed(&machine, opening).await else {
            self.crashed(&machine, 0);
            return Ok(Some(0));
        };
        let engine = opened?;
        *kept = Some(Arc::clone(&engine));
        let server = Simulated::start(Arc::clone(&engine), server_config());
        let clients = (0..CONNECTIONS).map(|_| server.connect().map(Client::new));
        let mut life = Life {
            clients: clients.collect(),
            pending: (0..CONNECTIONS).map(|_| Vec::new()).collect(),
            machine,
            engine,
            server,
        };
        let keep = [30_000, 120_000, 400_000, 4_000_000][usize::from(self.settings.memory % 4)];
        let limit = life.engine.stats().dram_limit_bytes;
        life.engine.loans().lend(limit.saturating_sub(keep));
        let end = match self.steps(&mut life, steps).await {
            Err(Halt::Wrong(wrong)) => return Err(wrong),
            Err(Halt::Crashed) => Some(Ended::Crash(self.clock)),
            Ok(end) => end,
        };
        match end {
            Some(Ended::Crash(clock)) => {
                self.count(&life.engine);
                self.crashed(&life.machine, losses(&life.engine));
                return Ok(Some(clock));
            }
            Some(Ended::Stop(clock)) => return self.stop(life, clock).await.map(Some),
            None => {}
        }
        self.count(&life.engine);
        *kept = None;
        Ok(None)
    }

    /// Takes steps until one ends the life. Returns `None` at the end of the input.
    async fn steps(&mut self, life: &mut Life, steps: &mut Steps) -> Result<Option<Ended>, Halt> {
        if self.settings.memory < 128 {
            unless_crashed(&life.machine, life.engine.recovered()).await?;
        }
        for step in steps {
            let end = self.step(life, step).await?;
            if end.is_some() {
                return Ok(end);
            }
        }
        self.round(life).await?;
        Ok(None)
    }

    /// Opens the image.
    async fn open(&mut self, machine: &Arc<Machine>) -> Result<Arc<Engine>, String> {
        let disk: Arc<dyn device::Disk> = Arc::new(WatchedDisk(Arc::clone(machine)));
        let journal = machine.journal();
        let opening = Opening::new(disk, engine_config(self.settings));
        let opened = opening.open(move || Ok(journal)).await;
        let engine = opened.map_err(|error| format!("cannot be opened: {error}"))?;
        match engine.start() {
            Start::Empty(why) if self.is_known => return Err(format!("starts empty: {why}")),
            Start::Warm { orderly: false, .. } if self.is_orderly => {
                return Err("the orderly stop is forgotten".to_owned());
            }
            _ => {}
        }
        let second = runtime::unix_seconds();
        self.lives.push(format!("{:?} at {second}", engine.start()));
        self.is_known = true;
        self.is_orderly = false;
        Ok(engine)
    }

    fn count(&mut self, engine: &Engine) {
        let stats = engine.stats();
        self.report.reclaimed += stats.placement.segments_reclaimed;
        self.report.flash_hits += stats.paths.flash_hits;
    }

    /// Notes the crash of a machine, of which the engine has counted `losses`.
    fn crashed(&mut self, machine: &Machine, losses: u64) {
        let crash = machine.take_crash().expect("it has crashed");
        self.report.crashes += 1;
        self.lives.push(format!(
            "{:?} at {}, {losses} losses",
            crash.end, crash.second
        ));
        self.world.pass(crash.second);
        self.world.end(Some(crash.end), crash.nanos, losses);
        self.left = crash.left;
        self.is_orderly = false;
    }

    async fn stop(&mut self, life: Life, clock: u8) -> Result<u8, String> {
        let before = losses(&life.engine);
        let Life {
            machine,
            engine,
            server,
            clients,
            ..
        } = life;
        drop(clients);
        let stopped = unless_crashed(&machine, server.stop()).await;
        let Ok(stopped) = stopped else {
            self.count(&engine);
            self.crashed(&machine, losses(&engine));
            return Ok(clock);
        };
        match stopped {
            Some(Stop::Complete { .. }) => {}
            other => return Err(format!("an orderly stop ended with {other:?}")),
        }
        self.count(&engine);
        self.report.restarts += 1;
        let lost = losses(&engine) - before;
        self.lives.push(format!(
            "a stop at {}, {lost} losses",
            runtime::unix_seconds()
        ));
        let nanos = runtime::now().as_nanos();
        self.world.pass(runtime::unix_seconds());
        self.world.end(None, nanos, losses(&engine));
        self.left = machine.left();
        self.armed = machine.armed();
        self.is_orderly = true;
        Ok(clock)
    }

    async fn step(&mut self, life: &mut Life, step: Step) -> Result<Option<Ended>, Halt> {
        match step {
            Step::Call { connection, call } => self.add(life, connection, call).await?,
            Step::Cuts { connection, pieces } => {
                if let Some(client) = &mut life.clients[connection] {
                    client.pieces = pieces;
                }
            }
            Step::Arm { kind, after } => {
                self.clock = kind / 16;
                life.machine.arm(End::of(kind), u32::from(after) + 1);
            }
            Step::SlowRead(by) => life.machine.slow_read(time_step(by % 8)),
            Step::Barrier => self.round(life).await?,
            Step::Pass(by) => {
                self.round(life).await?;
                unless_crashed(&life.machine, runtime::sleep(time_step(by))).await?;
            }
            Step::Checkpoint => {
                self.round(life).await?;
                unless_crashed(&life.machine, life.engine.checkpoint_now()).await?;
            }
            Step::Reconnect(number) => {
                self.round(life).await?;
                life.clients[number] = life.connect();
            }
            Step::Restart(clock) => {
                self.round(life).await?;
                return Ok(Some(Ended::Stop(clock)));
            }
            Step::Crash(clock) => {
                self.round(life).await?;
                life.machine.crash(End::of(clock / 16));
                return Ok(Some(Ended::Crash(clock)));
            }
        }
        Ok(None)
    }

    /// Adds a command to the round. Sends the round first if the command has to wait for it.
    async fn add(&mut self, life: &mut Life, connection: usize, call: Call) -> Result<(), Halt> {
        let limits = self.world.limits;
        let is_alone = round::is_alone(&call.bytes, &limits);
        let keys = round::keys(&call.bytes, &limits);
        let shares_key = |sent: &&Sent| {
            round::keys(&sent.call.bytes, &limits)
                .iter()
                .any(|key| keys.contains(key))
        };
        let together = life.pending.iter().flatten().filter(shares_key).count();
        let is_full = life.pending.iter().map(Vec::len).sum::<usize>() >= MOST_IN_A_ROUND;
        if is_alone || is_full || together >= MOST_TOGETHER {
            self.round(life).await?;
        }
        let end = call.end;
        self.next_source += 1;
        life.pending[connection].push(Sent {
            call,
            source: self.next_source,
            span: (0, 0),
            answer: None,
        });
        if is_alone || end != After::GoesOn {
            self.round(life).await?;
        }
        Ok(())
    }

    /// Sends the commands of the round, and judges their answers.
    async fn round(&mut self, life: &mut Life) -> Result<(), Halt> {
        if life.pending.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let before = losses(&life.engine);
        let is_recovering = life.engine.recovery().is_running;
        self.world
            .settle_pending(runtime::unix_seconds(), runtime::now().as_nanos());
        for number in 0..CONNECTIONS {
            if life.clients[number].is_none() && !life.pending[number].is_empty() {
                life.clients[number] = life.connect();
                if life.clients[number].is_none() {
                    life.pending[number].clear();
                }
            }
        }
        let sent: Vec<Rc<RefCell<Vec<Sent>>>> = life
            .pending
            .iter_mut()
            .map(|pending| Rc::new(RefCell::new(std::mem::take(pending))))
            .collect();
        let done = {
            let exchanges = life.clients.iter().zip(&sent).map(|(client, sent)| async {
                let is_empty = sent.borrow().is_empty();
                match client {
                    Some(client) if !is_empty => {
                        client.exchange(&life.machine, sent).await.map(Some)
                    }
                    _ => Ok(None),
                }
            });
            let all = runtime::timeout(PATIENCE, join_all(exchanges));
            unless_crashed(&life.machine, all).await
        };
        let sent: Vec<Vec<Sent>> = sent.iter().map(|sent| sent.take()).collect();
        let now = runtime::unix_seconds();
        self.world.pass(now);
        let facts = Facts {
            losses: (before, losses(&life.engine)),
            is_recovering,
            nanos: runtime::now().as_nanos(),
            now,
        };
        let commands = sent.iter().flatten();
        self.report.commands += commands.filter(|sent| sent.answer.is_some()).count() as u64;
        round::judge(&mut self.world, &sent, facts)?;
        let done = done?.map_err(|_| "a connection waits for ever".to_owned())?;
        for (number, goes_on) in done.into_iter().enumerate() {
            if goes_on? == Some(false) {
                life.clients[number] = None;
            }
        }
        Ok(())
    }
}

/// The end of a life that a step asks for, and the step of the clock after it.
enum Ended {
    Crash(u8),
    Stop(u8),
}

impl Life {
    fn connect(&self) -> Option<Client> {
        self.server.connect().map(Client::new)
    }
}

fn server_config() -> Config {
    let mut config = Config::default();
    config.cache.memory = Some(Size(64 << 20));
    config.cache.max_item_size = Some(Size(u64::from(MAX_VALUE_BYTES)));
    config.server.threads = 1;
    config
}

/// The journal is as small as the engine allows.
const _: () = assert!(JOURNAL_WORDS == 512 + 8 * 1024);
