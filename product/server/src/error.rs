//! Errors of a server that cannot start.

use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use device::{JournalError, NamedError, Setting, renamed};
use engine::OpenError;

use crate::config::{ConfigError, Size};

/// Returns the settings that can mend an error of the engine's configuration.
fn settings_of(error: &engine::ConfigError) -> &'static str {
    use engine::ConfigError::{
        Buffers, Flash, FlashTooLarge, Memory, NowhereToReturn, Range, Value, Watermarks,
    };
    match error {
        Memory { .. } => "--memory, --flash-size, cache.segment_size",
        Buffers { .. } => "cache.segment_buffers",
        NowhereToReturn => "--preset",
        Flash { .. } | FlashTooLarge { .. } => "--flash-size, cache.segment_size",
        Value { .. } => "--max-item-size, cache.segment_size",
        Watermarks { .. } => "cache.low_watermark, cache.high_watermark",
        Range { name, .. } => match *name {
            "buffers" => "cache.segment_buffers",
            "index_percent" => "cache.index_percent",
            "hot_percent" => "cache.hot_percent",
            "filter_bits" => "cache.filter_bits",
            "incarnations" => "cache.incarnations",
            "filter_percent" => "cache.filter_percent",
            "max_copy_sixteenths" => "cache.max_copy_sixteenths",
            "reads" => "cache.admission",
            "window" => "cache.admission_window",
            "hits_per_100_writes" => "cache.admission_hits_per_100_writes",
            "segment_bytes" => "cache.segment_size",
            _ => "--preset",
        },
    }
}

/// Returns the message of an error of the library, with the server's options in place of the library's settings.
pub fn in_options(error: &dyn Display) -> String {
    renamed(error, |setting| match setting {
        Setting::Force => "--force",
        Setting::OverwriteFilesystem => "--overwrite-filesystem",
        Setting::FlashSize => "--flash-size",
        Setting::IndexFlash => "--index-flash",
        Setting::Journal => "cache.journal",
        Setting::JournalSize => "cache.journal_size",
        Setting::Memory => "--memory",
        Setting::Buffers => "cache.segment_buffers",
    })
}

/// Returns the remedy of an address that cannot be listened on.
fn remedy(refused: &io::Error) -> &'static str {
    use io::ErrorKind::{
        AddrInUse, AddrNotAvailable, AlreadyExists, InvalidInput, NotADirectory, NotFound,
        PermissionDenied, ReadOnlyFilesystem,
    };
    match refused.kind() {
        AddrInUse => "stop the process that listens there, or choose another address (--listen)",
        AddrNotAvailable => "choose an address of this machine (--listen)",
        AlreadyExists => "a file that is no socket has the path: remove it, or choose another path",
        NotFound | NotADirectory => "create the directory of the socket first",
        InvalidInput => "choose a path of at most 107 bytes",
        ReadOnlyFilesystem => "choose a path on a file system that can be written to",
        PermissionDenied => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE, the directory of a socket the right to write: give it, or choose \
             another address (--listen)"
        }
        _ => "choose another address (--listen)",
    }
}

/// Reason why a server could not start, in one line with the remedy.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(
        "--memory: {given} is too little; the server needs {needed} with these settings and {workers} workers of {worker} \
         each: raise it, or lower --threads"
    )]
    Memory {
        given: Size,
        needed: Size,
        workers: usize,
        worker: Size,
    },
    #[error(
        "--max-item-size: values of {given} are too large: {largest} is the largest with {memory} of memory and {flash} \
         of flash, and {given} needs {needed_memory} of memory and {needed_flash} of flash (--memory, --flash-size)"
    )]
    LargestValue {
        given: Size,
        largest: Size,
        memory: Size,
        flash: Size,
        needed_memory: Size,
        needed_flash: Size,
    },
    #[error(
        "--memory: {given} is too little for a cache of these sizes, which needs {needed}: raise it, or lower --flash-size, \
         --max-item-size, cache.segment_buffers or cache.segment_size"
    )]
    CacheMemory { given: Size, needed: Size },
    #[error("--memory: {given} is more than the {installed} that this machine has")]
    MoreMemory { given: Size, installed: Size },
    #[error(
        "--memory: {given} does not fit: the limit on {limit} leaves {left} and {needed} are needed: raise the limit, or lower \
         --memory or --threads"
    )]
    Mappable {
        given: Size,
        limit: &'static str,
        left: Size,
        needed: Size,
    },
    #[error(
        "{allowed} open files are allowed and at least {needed} are needed: raise the hard limit (ulimit -Hn), or lower \
         --threads or --max-connections"
    )]
    Files { allowed: u64, needed: u64 },
    #[error("{settings}: {0}", settings = settings_of(.0))]
    Sizes(#[from] engine::ConfigError),
    #[error(
        "cache.low_watermark, cache.high_watermark: set cache.reserve to `static`, choose a preset whose reserve is, or leave them out"
    )]
    Watermarks,
    #[error(
        "cache.admission_window, cache.admission_hits_per_100_writes, cache.admission_remembers, cache.application_delimiter: set cache.admission to `learned`, choose a preset whose admission is, or leave them out"
    )]
    Learning,
    #[error("cache.admission: {0}")]
    Admission(engine::admission::SettingError),
    #[error("cache.low_watermark, cache.high_watermark: {0}")]
    Reserve(engine::ConfigError),
    #[error("{}", in_options(.0))]
    Device(#[from] device::OpenError),
    #[error("--flash: {0}")]
    Named(#[from] NamedError),
    #[error(
        "{path}: no such file, and without it nothing in {flash} can be found: give it back, or use \
         --force to start empty"
    )]
    NoSuperblock { path: PathBuf, flash: PathBuf },
    #[error("{path}: {problem}", problem = in_options(source))]
    Image { path: PathBuf, source: OpenError },
    #[error("{}", in_options(.0))]
    Journal(JournalError),
    #[error("cannot listen on {address}: {source}; {}", remedy(source))]
    Listen { address: String, source: io::Error },
    #[error("the workers cannot start: {0}")]
    Workers(io::Error),
}
