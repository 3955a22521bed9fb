//! The options of `flowstone compare`, and the plan that follows from them.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use emulated::{DeviceSpec, DiskSpec, SpecError};
use engine::preset::Preset;
use engine::{AdmissionKind, Reserve, StaticReserve};
use lab::compare::{CompareError, DeviceChoice, Plan};
use server::config::Size;
use workload::Workload;

use crate::workload_args::WorkloadArgs;

/// Default number of requests to measure.
const DEFAULT_REQUESTS: u64 = 1_000_000;
/// Default number of processors under virtual time, and default maximum of worker threads in real time.
const DEFAULT_CPUS: u32 = 4;

/// Run presets side by side on the same work.
#[derive(Parser, Debug)]
pub(crate) struct CompareArgs {
    /// The presets, separated by commas; they are listed below
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    presets: Vec<String>,
    /// The workload: etc, zipfian, memcachier, twitter:NN, ... [`flowstone bench --help` lists all]
    #[arg(long, default_value = "etc", value_name = "NAME")]
    workload: String,
    /// Replay a recorded trace: short for --workload trace:FILE
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    trace: Option<PathBuf>,
    /// nand:PRESET or ftl:PRESET, with ,size=S ,block=S ,channels=N ,luns=N ,bad=P% ,cycles=N ,erase_us=T ,read_us=T
    /// ,program_us=T, ftl: ,cache=S, emulated under virtual time, or file:PATH in real time
    #[arg(long, default_value = "ftl:didacache", value_name = "DEVICE")]
    device: String,
    /// A separate device for the part of an index on flash: nvm:optane, with ,size=S ,channels=N ,read_us=T
    /// ,write_us=T, or ftl:PRESET [default: a part of the device]
    #[arg(long, value_name = "DEVICE")]
    index_device: Option<String>,
    /// Memory of the cache
    #[arg(long, default_value = "256MiB", value_name = "SIZE")]
    memory: Size,
    /// Size of the device [default: 4GiB of emulated flash, all of an existing file]
    #[arg(long, value_name = "SIZE")]
    flash_size: Option<Size>,
    /// Size of a segment on a drive; on flash it is an erase block [default: the preset's choice]
    #[arg(long, value_name = "SIZE")]
    segment_size: Option<Size>,
    /// Memory for segments being filled and written, part of the cache's memory [default: the preset's
    /// choice]
    #[arg(long, value_name = "SIZE")]
    write_buffers: Option<Size>,
    /// Requests to measure [default: 1000000, all of a trace]
    #[arg(long, value_name = "N")]
    requests: Option<NonZeroU64>,
    /// Requests to make before measuring [default: as many as are measured, none of a trace]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,
    /// First store every key once [default: only if the workload stores nothing on a miss]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    load: Option<bool>,
    /// Clients, each with one request at a time
    #[arg(long, default_value = "32", value_name = "N")]
    clients: NonZeroU32,
    /// Processors under virtual time, worker threads in real time [default: 4; in real time no more
    /// than there are cores]
    #[arg(long, value_name = "N")]
    cpus: Option<NonZeroU32>,
    /// Processor cost under virtual time: 0 nothing, 1 as measured, 2 twice as much
    #[arg(long, default_value_t = 1, value_name = "0|1|2")]
    cpu_scale: u32,
    /// The same for copying items alone, by writes and by reclaim
    #[arg(long, default_value_t = 1, value_name = "0|1|2")]
    copy_scale: u32,
    /// Microseconds of processor time of a request outside of the cache, under virtual time [default: as
    /// measured without sockets]
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    request_us: Option<u32>,
    /// Servers of one thread that share the clients, under virtual time: each does one request at a time, its flash reads
    /// included [default: every client is served on its own]
    #[arg(long, value_name = "N")]
    servers: Option<NonZeroU32>,
    /// Microseconds between an answer and the client's next request
    #[arg(long, default_value_t = 0, value_name = "MICROSECONDS")]
    turnaround_us: u64,
    /// Segments written at once, and segments reclaimed at once [default: the preset's choice]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroU32>,
    /// Maximum share of a segment that reclaim copies, in sixteenths [default: the preset's choice]
    #[arg(long, value_name = "N")]
    max_copy: Option<u32>,
    /// Items that go to flash when they leave memory: all, random:PERCENT, ghosts:READS, reread:READS, adaptive:READS or
    /// learned:READS [default: the preset's choice]
    #[arg(long, value_name = "POLICY", value_parser = |text: &str| systems::PRESETS.admission(text))]
    admission: Option<Arc<dyn AdmissionKind>>,
    /// Seconds in which samples are taken, and then counted, if admission learns [default: an hour]
    #[arg(long, value_name = "SECONDS")]
    admission_window: Option<NonZeroU32>,
    /// Watermarks of free segments in percent of the flash: reclaim is urgent below the low one and starts
    /// below the high one [default: the preset's choice]
    #[arg(long, value_name = "LOW-HIGH", value_parser = watermarks)]
    watermarks: Option<StaticReserve>,
    /// Microseconds that a database takes to answer a miss of the cache
    #[arg(long, default_value_t = 0, value_name = "MICROSECONDS")]
    database_us: u64,
    #[command(flatten)]
    chosen: WorkloadArgs,
    /// Print one JSON object for each preset, one a line
    #[arg(long)]
    pub(super) json: bool,
    /// Draw hit ratio and requests a second over the run
    #[arg(long, value_name = "FILE.svg")]
    pub(super) plot: Option<PathBuf>,
    /// Run this preset alone, for the parent process
    #[arg(long, hide = true, value_name = "PRESET")]
    worker: Option<String>,
}

/// Parses two watermarks such as `2-5`.
fn watermarks(text: &str) -> Result<StaticReserve, String> {
    let shares = text
        .split_once('-')
        .and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
    let (low_percent, high_percent) =
        shares.ok_or("write two numbers of percent, the lower first, for example 2-5")?;
    let watermarks = StaticReserve {
        low_percent,
        high_percent,
    };
    let checked = Reserve::Static(watermarks).check();
    checked.map_err(|error| error.to_string())?;
    Ok(watermarks)
}

impl CompareArgs {
    /// Returns the presets in the order of the option.
    pub(super) fn presets(&self) -> Result<Vec<&'static Preset>, CompareError> {
        let presets = self.presets.iter().map(|name| systems::PRESETS.named(name));
        Ok(presets.collect::<Result<_, _>>()?)
    }

    /// Returns the preset to run in this process if this is a child process.
    pub(super) fn worker_preset(&self, presets: &[&'static Preset]) -> Option<&'static Preset> {
        let worker = self.worker.as_deref()?;
        presets.iter().copied().find(|preset| preset.name == worker)
    }

    /// Checks the options against each other, and returns the plan.
    pub(super) fn plan(&self) -> Result<Plan, CompareError> {
        let settings = self.chosen.settings(self.clients.get().into());
        let name = match &self.trace {
            Some(path) => format!("trace:{}", path.display()),
            None => self.workload.clone(),
        };
        let workload = Workload::parse(&name, settings)?;
        let is_trace = workload.keys() == 0;
        if is_trace && self.load == Some(true) {
            return Err(workload::WorkloadError::NoKeys(workload.name()).into());
        }
        let asked = self.requests.map(NonZeroU64::get);
        let requests = asked.or((!is_trace).then_some(DEFAULT_REQUESTS));
        let usual_warmup = if is_trace { 0 } else { requests.unwrap_or(0) };
        let device = self.device()?;
        Ok(Plan {
            load: self.load.unwrap_or(!is_trace && !workload.set_on_miss()),
            cpus: self.cpus(&device),
            segment_bytes: self
                .segment_size
                .map(|size| u32::try_from(size.0).unwrap_or(u32::MAX)),
            buffer_bytes: self.write_buffers.map(|size| size.0),
            index_device: self
                .index_device
                .as_deref()
                .map(str::parse::<DiskSpec>)
                .transpose()?,
            requests,
            warmup: self.warmup.unwrap_or(usual_warmup),
            cpu_scale: self.cpu_scale,
            copy_scale: self.copy_scale,
            request: self.request_us.map(|us| Duration::from_micros(us.into())),
            servers: self.servers.map(NonZeroU32::get),
            turnaround: Duration::from_micros(self.turnaround_us),
            workers: self.workers.map(NonZeroU32::get),
            max_copy_sixteenths: self.max_copy,
            admission: self.admission.clone(),
            admission_window: self
                .admission_window
                .map(|seconds| Duration::from_secs(seconds.get().into())),
            reserve: self.watermarks.map(Reserve::Static),
            database: Duration::from_micros(self.database_us),
            ..Plan::new(workload, device, self.memory.0, self.clients.get())
        })
    }

    fn device(&self) -> Result<DeviceChoice, CompareError> {
        let bytes = self.flash_size.map(|size| size.0);
        if let Some(path) = self.device.strip_prefix("file:") {
            return Ok(DeviceChoice::File {
                path: path.into(),
                bytes,
            });
        }
        if !DeviceSpec::is_one(&self.device) {
            let text = self.device.clone();
            return Err(SpecError::NoDevice(text).into());
        }
        let text = match bytes {
            Some(bytes) => format!("{},size={bytes}", self.device),
            None => self.device.clone(),
        };
        Ok(DeviceChoice::Emulated(text.parse::<DeviceSpec>()?))
    }

    fn cpus(&self, device: &DeviceChoice) -> u32 {
        let usual = match device {
            DeviceChoice::Emulated(_) | DeviceChoice::Modelled { .. } => DEFAULT_CPUS,
            DeviceChoice::File { .. } => DEFAULT_CPUS.min(runtime::process::cores() as u32),
        };
        self.cpus.map_or(usual, NonZeroU32::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(options: &str) -> Result<Plan, String> {
        let line = format!("compare --presets flowstone {options}");
        let args = CompareArgs::try_parse_from(line.split_ascii_whitespace());
        let args = args.map_err(|error| error.to_string())?;
        let plan = args.plan().map_err(|error| error.to_string())?;
        for preset in args.presets().map_err(|error| error.to_string())? {
            plan.check(preset).map_err(|error| error.to_string())?;
        }
        Ok(plan)
    }

    #[test]
    fn as_much_is_warmed_up_as_measured_unless_a_trace_is_replayed() {
        let plan = checked("").unwrap();
        assert_eq!(
            (plan.requests, plan.warmup),
            (Some(DEFAULT_REQUESTS), DEFAULT_REQUESTS)
        );
        assert_eq!((plan.clients, plan.cpus, plan.load), (32, 4, false));
        let file = tempfile::Builder::new().suffix(".be32").tempfile().unwrap();
        std::fs::write(file.path(), 7u32.to_be_bytes()).unwrap();
        let trace = checked(&format!("--trace {}", file.path().display())).unwrap();
        assert_eq!((trace.requests, trace.warmup, trace.load), (None, 0, false));
        assert!(
            checked("--workload zipfian").unwrap().load,
            "nothing is stored on a miss"
        );
    }

    #[test]
    fn what_cannot_work_is_named_in_one_line() {
        for (options, part) in [
            ("--presets bigcache", "`bigcache`"),
            ("--workload pareto", "zipfian"),
            ("--device disk:x", "no emulated device"),
            ("--device ftl:slc", "no device preset"),
            (
                "--device ftl:mlc,size=1GiB --flash-size 2GiB",
                "given twice",
            ),
            ("--device nand:mlc,file=x", "leave out file="),
            ("--device ftl:mlc,size=900TB", "use fewer"),
            ("--index-device nand:mlc", "nvm:optane"),
            ("--index-device nvm:optane,channels=0", "channels=0"),
            ("--memory 1MiB", "memory"),
            ("--cpu-scale 3", "0, 1 or 2"),
            ("--clients 100000", "1 to 65536"),
            ("--memory 20MiB --keys 9000000", "do not fit its index"),
            ("--trace /nowhere/x.csv", "/nowhere/x.csv: cannot be read"),
            ("--key-size 3", "250"),
        ] {
            let error = checked(options).unwrap_err();
            assert!(error.contains(part), "{options}: {error}");
            assert!(!error.trim_end().contains('\n'), "{options}: {error}");
        }
    }
}
