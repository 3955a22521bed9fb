//! `flowstone serve`: the server.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use device::{NamedDevices, WriteRate};
use engine::Stop;
use runtime::live::Signals;
use server::config::{Config, ListenAddress, Seconds, Size};
use server::{FlashSetting, IndexFlashSetting};

use crate::memcached::MemcachedArgs;
use crate::{Offer, log};

/// Options of `serve`. Each stands for a setting of the configuration file and wins over it.
#[derive(Args)]
pub struct ServeArgs {
    /// Settings in a TOML file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to listen on, HOST:PORT or unix:PATH; may be given more than once.
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<ListenAddress>,
    /// Memory of the whole process: items, index, buffers, connections [default: 256MiB, or five eighths of a smaller memory cgroup].
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// File or block device that holds the items.
    #[arg(long, value_name = "PATH")]
    flash: Option<PathBuf>,
    /// Size of the file or block device [default: 4GiB for a new file, the whole of a device].
    #[arg(long, value_name = "SIZE")]
    flash_size: Option<Size>,
    /// File or block device for the part of the index that is not in memory, made for a new cache [default: a part of the flash].
    #[arg(long, value_name = "PATH")]
    index_flash: Option<PathBuf>,
    /// Limit on the bytes written to the flash: in a second, as 20MiB, or the rated writes of the drive over its lifetime, as
    /// 600TB/5y. When the limit is reached, new items are dropped instead of written [default: no limit].
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    flash_write_limit: Option<WriteRate>,
    /// The system to run, one of the presets below [default: flowstone].
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// Worker threads [default: one per core, if their buffers take at most a quarter of the memory].
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: Option<usize>,
    /// Connections at once [default: 10000].
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,
    /// Time after which a silent connection is closed: seconds, or as 5m or 2h; 0 for never.
    #[arg(long, value_name = "TIME")]
    idle_timeout: Option<Seconds>,
    /// Largest value [default: 1MiB].
    #[arg(long, value_name = "SIZE")]
    max_item_size: Option<Size>,
    /// Downtime after which the items are not trusted any more [default: never].
    #[arg(long, value_name = "TIME")]
    max_downtime: Option<Seconds>,
    /// Let clients stop the server with `shutdown`.
    #[arg(long)]
    enable_shutdown: bool,
    /// Overwrite the contents of the flash: an old image, or unknown bytes.
    #[arg(long)]
    force: bool,
    /// As --force, also where there is a file system, a volume or a partition table; never one that is mounted.
    #[arg(long)]
    overwrite_filesystem: bool,
    /// Any other setting.
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    memcached: MemcachedArgs,
}

impl ServeArgs {
    /// Returns the settings: those of the file, with these options.
    pub(crate) fn config(self, devices: &dyn NamedDevices) -> Result<Config, String> {
        let mut config =
            Config::load(self.config.as_deref(), &self.set).map_err(|error| error.to_string())?;
        self.memcached.apply(&mut config)?;
        let server = &mut config.server;
        if !self.listen.is_empty() {
            server.listen = self.listen;
        }
        take(&mut server.threads, self.threads);
        server.max_connections = self.max_connections.or(server.max_connections);
        take(&mut server.idle_timeout, self.idle_timeout);
        server.enable_shutdown |= self.enable_shutdown;
        let cache = &mut config.cache;
        cache.memory = self.memory.or(cache.memory);
        if let Some(flash) = self.flash {
            cache.flash = FlashSetting::Path(flash);
        }
        cache.flash_size = self.flash_size.or(cache.flash_size);
        if let Some(index) = self.index_flash {
            cache.index_flash = Some(IndexFlashSetting::Path(index));
        }
        cache.flash_write_limit = self.flash_write_limit.or(cache.flash_write_limit);
        take(&mut cache.preset, self.preset);
        cache.max_item_size = self.max_item_size.or(cache.max_item_size);
        take(&mut cache.max_downtime, self.max_downtime);
        cache.force |= self.force;
        cache.overwrite_filesystem |= self.overwrite_filesystem;
        let named = config.name_devices(devices);
        named.map_err(|error| error.to_string())?;
        Ok(config)
    }
}

fn take<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

/// Runs the server. Returns 2 if it cannot start, 1 if it could not stop orderly.
pub fn run(args: ServeArgs, offer: Offer) -> ExitCode {
    runtime::process::give_freed_memory_back();
    // Before anything that takes time: from here on no signal ends the process by itself.
    let signals = match runtime::live::signals() {
        Ok(signals) => signals,
        Err(error) => return crate::exit::refuse(format!("signals cannot be handled: {error}")),
    };
    match serve(args, offer, signals) {
        Ok(stop) => crate::exit::of(!matches!(stop, Stop::Incomplete { .. })),
        Err(what) => crate::exit::refuse(what),
    }
}

fn serve(args: ServeArgs, offer: Offer, signals: Signals) -> Result<Stop, String> {
    let config = args.config(offer.devices)?;
    let preset = offer
        .presets
        .named(&config.cache.preset)
        .map_err(|error| format!("--preset (cache.preset): {error}"))?;
    let admission = config.cache.admission.as_deref();
    let admission = admission
        .map(|text| offer.presets.admission(text))
        .transpose()
        .map_err(|error| format!("cache.admission: {error}"))?;
    let settings = move |sizes| {
        let mut made = (preset.config)(sizes);
        if let Some(admission) = &admission {
            made.admission = Arc::clone(admission);
        }
        made
    };
    let log = log::start(&config.log)?;
    let write_log = {
        let log = log.clone();
        move |patience| log.write_all(patience)
    };
    let outcome = server::run(config, settings, signals, write_log);
    log.write_all(server::LAST_WORDS);
    outcome.map_err(|error| error.to_string())
}
