//! Workloads: a name and settings in, streams of requests out.

use std::sync::Arc;

use crate::error::WorkloadError;
use crate::key_id::KeyId;
use crate::keys::{COMPACT_DIGITS, KeyNames, KeySize, Spelling};
use crate::mix::Op;
use crate::name::Name;
use crate::presets::preset;
use crate::request::Request;
use crate::settings::{Settings, check_sizes};
use crate::sizes::ValueSize;
use crate::tenant::{Preset, Tenant};
use crate::trace::{TraceError, TraceReader};
use crate::weighted::Weighted;

/// A named workload with checked settings. Immutable; clients on any thread may share it.
#[derive(Clone, Debug)]
pub struct Workload {
    name: Name,
    settings: Settings,
    names: KeyNames,
    pub(crate) tenants: Arc<[Tenant]>,
    /// Choice of a request's tenant, if there are several.
    pub(crate) choice: Option<Arc<Weighted<usize>>>,
    set_on_miss: bool,
}

impl Workload {
    /// Returns the workload called `name`, in one of the forms of [`CATALOG`](crate::CATALOG), with
    /// `settings`. Opens a trace and reads its first request.
    pub fn parse(name: &str, settings: Settings) -> Result<Self, WorkloadError> {
        let name = Name::parse(name)?;
        settings.check()?;
        if let Name::Trace(..) = &name {
            return Self::of_trace(name, settings);
        }
        let preset = preset(&name, &settings)?;
        Self::of_preset(name, settings, preset)
    }

    fn of_preset(name: Name, settings: Settings, preset: Preset) -> Result<Self, WorkloadError> {
        let size = settings.key_size.unwrap_or(preset.key_size);
        let spelling = match name {
            Name::Memcachier(_) => Spelling::Applications,
            _ => Spelling::Decimal,
        };
        let names = KeyNames::new(spelling, size, settings.seed);
        let weights = preset.shares.iter().map(|share| share.weight).enumerate();
        let choice = Weighted::new(weights).filter(|_| preset.shares.len() > 1);
        let shares = preset.shares.into_iter();
        let tenants: Arc<[Tenant]> = shares.map(|share| Tenant::new(share, &settings)).collect();
        let lengths = tenants.iter().map(|it| it.share.value_size.longest());
        let longest = lengths.max();
        check_sizes(
            size,
            longest_name(&names, &tenants),
            settings.keys,
            longest.unwrap_or(0),
        )?;
        if name == Name::Latest
            && tenants
                .iter()
                .any(|tenant| tenant.share.churn != Default::default())
        {
            return Err(WorkloadError::Fixed {
                name: "unread or renewing",
                workload: "latest, whose writes make new keys,".to_owned(),
            });
        }
        Ok(Self {
            set_on_miss: settings.set_on_miss.unwrap_or(preset.set_on_miss),
            choice: choice.map(Arc::new),
            name,
            names,
            tenants,
            settings,
        })
    }

    fn of_trace(name: Name, settings: Settings) -> Result<Self, WorkloadError> {
        let fixed = [
            ("the operation ratio", settings.mix.is_some()),
            ("unread", settings.unread.is_some()),
            ("renewing", settings.renewing.is_some()),
        ];
        if let Some((setting, _)) = fixed.iter().find(|(_, is_set)| *is_set) {
            return Err(WorkloadError::Fixed {
                name: setting,
                workload: name.to_string(),
            });
        }
        let size = settings.key_size.unwrap_or(TRACE_KEY_SIZE);
        let names = KeyNames::new(Spelling::Compact, size, settings.seed);
        let longest = settings.value_size.as_ref().map_or(0, ValueSize::longest);
        check_sizes(size, COMPACT_DIGITS, 1, longest)?;
        let workload = Self {
            set_on_miss: settings.set_on_miss.unwrap_or(true),
            choice: None,
            tenants: Arc::new([]),
            name,
            names,
            settings,
        };
        let first = match workload.open()? {
            Some(mut trace) => trace.next_request()?,
            None => None,
        };
        match first {
            Some(_) => Ok(workload),
            None => Err(WorkloadError::EmptyTrace(workload.name())),
        }
    }

    /// Returns the name from which the workload was made.
    pub fn name(&self) -> String {
        self.name.to_string()
    }

    /// Returns the settings from which the workload was made.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the converter between key ids and names.
    pub fn key_names(&self) -> KeyNames {
        self.names
    }

    /// Returns whether a client stores a value, with [`Request::fill`], after a get that found nothing.
    pub fn set_on_miss(&self) -> bool {
        self.set_on_miss
    }

    /// Returns the number of keys in use at any time, which can be stored beforehand; 0 for a trace.
    pub fn keys(&self) -> u64 {
        self.tenants.iter().map(|tenant| tenant.share.keys).sum()
    }

    /// Returns the set that stores key `index` beforehand. Panics if there is no such key: `index` must be
    /// below [`Workload::keys`].
    #[inline]
    pub fn load(&self, index: u64) -> Request {
        let mut before = 0;
        for tenant in &*self.tenants {
            if index - before < tenant.share.keys {
                return tenant.request(Op::Set, tenant.key(index - before), self.settings.seed);
            }
            before += tenant.share.keys;
        }
        panic!("there is no key {index} to load among {before}");
    }

    /// Returns the length of the value of `id`, in bytes, the same for every writer and reader. Returns
    /// `None` for a trace, where every write may have another length.
    #[inline]
    pub fn value_len(&self, id: KeyId) -> Option<u32> {
        let share = &self.tenant_of(id)?.share;
        Some(share.value_size.of(self.settings.seed, id))
    }

    fn tenant_of(&self, id: KeyId) -> Option<&Tenant> {
        match &*self.tenants {
            [only] => Some(only),
            several => several
                .iter()
                .find(|tenant| tenant.share.application == id.application()),
        }
    }

    /// Refuses a workload that has more keys, or longer ones, than its user can hold.
    pub fn check_fits(&self, max_keys: u64, max_key_bytes: usize) -> Result<(), WorkloadError> {
        let does_not_fit = |what| {
            Err(WorkloadError::DoesNotFit {
                workload: self.name(),
                what,
            })
        };
        let keys = self.keys();
        if keys > max_keys {
            return does_not_fit(format!(
                "it has {keys} keys, and there is room for {max_keys}"
            ));
        }
        let longest = match self.name {
            // The lengths in a trace are checked as it is read.
            Name::Trace(..) => 0,
            _ => longest_name(&self.names, &self.tenants),
        };
        if longest > max_key_bytes {
            return does_not_fit(format!(
                "its keys have up to {longest} bytes, and {max_key_bytes} are allowed"
            ));
        }
        Ok(())
    }

    pub(crate) fn open(&self) -> Result<Option<TraceReader>, TraceError> {
        match &self.name {
            Name::Trace(format, path) => TraceReader::open(path, *format).map(Some),
            _ => Ok(None),
        }
    }
}

/// Returns the longest name of a key that is in use at the start, in bytes.
fn longest_name(names: &KeyNames, tenants: &[Tenant]) -> usize {
    let shares = tenants.iter().map(|tenant| &tenant.share);
    let longest = shares.map(|share| names.longest(share.application, share.keys));
    longest.max().unwrap_or(0)
}

/// Lengths of names in traces that do not state the lengths of keys.
const TRACE_KEY_SIZE: KeySize = KeySize::Fixed(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::assert_refused;
    use crate::known::NAMES;
    use crate::mix::Mix;

    fn workload(name: &str, keys: u64) -> Workload {
        let settings = Settings {
            keys,
            clients: 2,
            ..Settings::default()
        };
        Workload::parse(name, settings).unwrap()
    }

    fn requests(workload: &Workload, client: u64, count: usize) -> Vec<Request> {
        let mut stream = workload.clients().unwrap().client(client);
        let next = |_| stream.next_request().unwrap().unwrap();
        (0..count).map(next).collect()
    }

    #[test]
    fn every_name_makes_a_repeatable_workload_with_keys_in_range() {
        for name in NAMES
            .into_iter()
            .chain(["memcachier:app19", "twitter:12", "twitter:52"])
        {
            let settings = Settings {
                keys: 500,
                mix: Some(Mix::parse("8:1:1").unwrap()),
                ..Settings::default()
            };
            let workload = Workload::parse(name, settings).unwrap();
            assert_eq!(workload.name(), name);
            assert_eq!(workload.keys(), 500);
            let drawn = requests(&workload, 3, 2000);
            assert_eq!(drawn, requests(&workload, 3, 2000), "{name}");
            for request in drawn {
                assert_eq!(workload.value_len(request.key), Some(request.value_len));
                let number = request.key.0 & ((1 << 48) - 1);
                assert!(number < 500 + 2 * 2000, "{name}: {request:?}");
            }
        }
    }

    #[test]
    fn every_loaded_key_has_a_name_and_is_asked_for() {
        for name in ["zipfian", "etc", "memcachier", "twitter:52"] {
            let workload = workload(name, 100);
            let loaded: std::collections::HashSet<_> =
                (0..100).map(|index| workload.load(index).key).collect();
            assert_eq!(loaded.len(), 100);
            let mut asked = requests(&workload, 0, 20_000);
            asked.retain(|request| loaded.contains(&request.key));
            let hits = asked.len();
            assert!(hits > 5_000, "{name}: {hits}");
            let names = workload.key_names();
            for id in loaded {
                let mut out = [0; crate::MAX_KEY_BYTES];
                let len = names.write(id, &mut out);
                assert_eq!(names.parse(&out[..len]), Some(id), "{name}");
            }
        }
    }

    /// The first requests of every generator, with the names of their keys: a change would silently make
    /// recorded runs unrepeatable, here or on another machine.
    #[test]
    fn the_first_requests_never_change() {
        let seen = GOLDEN.map(|(name, _)| {
            let workload = workload(name, 100_000);
            let mut bytes = Vec::new();
            for request in requests(&workload, 1, 20_000) {
                let mut out = [0; crate::MAX_KEY_BYTES];
                let len = workload.key_names().write_for(&request, &mut out);
                bytes.extend_from_slice(&out[..len]);
                bytes.push(request.op as u8);
                bytes.extend(request.value_len.to_le_bytes());
                bytes.extend(request.ttl_s.to_le_bytes());
            }
            (name, xxhash_rust::xxh3::xxh3_64(&bytes))
        });
        assert_eq!(seen, GOLDEN);
    }

    const GOLDEN: [(&str, u64); 12] = [
        ("uniform", 0xE64A_06D8_BE31_70D0),
        ("zipfian", 0x7C0E_F1EE_156B_F808),
        ("hotspot", 0xA1F8_4C7D_E707_F666),
        ("normal", 0x1F18_FCE4_CF1D_A496),
        ("latest", 0xF45B_CFB7_8D48_50E5),
        ("single", 0x94DB_A2CE_BACE_6392),
        ("etc", 0xEBBA_E11B_D13E_D652),
        ("memcachier", 0x54FB_5D5A_A48F_FA9C),
        ("memcachier:app19", 0x4503_A2C8_8C11_67F9),
        ("twitter:12", 0xFF9E_9B1E_4650_F8B7),
        ("twitter:21", 0x29F6_3886_DCAF_737A),
        ("twitter:52", 0x72A1_1A94_11D0_F20E),
    ];

    #[test]
    fn a_traces_requests_are_shared_by_its_clients_and_begin_anew_with_each_run() {
        let file = tempfile::Builder::new().suffix(".be32").tempfile().unwrap();
        let bytes: Vec<u8> = (0..100u32).flat_map(u32::to_be_bytes).collect();
        std::fs::write(file.path(), bytes).unwrap();
        let settings = Settings {
            value_size: Some(ValueSize::Fixed(64)),
            ..Settings::default()
        };
        let name = format!("trace:{}", file.path().display());
        let workload = Workload::parse(&name, settings).unwrap();
        assert_eq!((workload.keys(), workload.set_on_miss()), (0, true));
        for _ in 0..2 {
            let clients = workload.clients().unwrap();
            let mut streams = [clients.client(0), clients.client(1)];
            for row in 0..100 {
                let request = streams[row % 2].next_request().unwrap().unwrap();
                assert_eq!((request.key, request.value_len), (KeyId(row as u64), 64));
                assert_eq!(workload.value_len(request.key), None);
            }
            let ends = streams.each_mut().map(|stream| stream.next_request());
            assert_eq!(ends, [Ok(None), Ok(None)]);
        }
    }

    #[test]
    fn what_a_trace_brings_itself_cannot_be_set() {
        let file = tempfile::Builder::new().suffix(".be64").tempfile().unwrap();
        let name = format!("trace:{}", file.path().display());
        let settings = Settings {
            mix: Some(Mix::READS),
            ..Settings::default()
        };
        let refused = Workload::parse(&name, settings);
        assert_refused(refused, "the operation ratio cannot be set");
        let refused = Workload::parse(&name, Settings::default());
        assert_refused(refused, "holds no request");
    }

    #[test]
    fn a_workload_that_does_not_fit_says_why_in_one_line() {
        let workload = workload("etc", 1_000_000);
        assert_eq!(workload.check_fits(1_000_000, 250), Ok(()));
        let why = |keys, bytes| {
            let error = workload.check_fits(keys, bytes).unwrap_err().to_string();
            let why = error.strip_prefix("the workload etc does not fit: ");
            why.unwrap().to_owned()
        };
        let words = "it has 1000000 keys, and there is room for 999999";
        assert_eq!(why(999_999, 250), words);
        let words = "its keys have up to 250 bytes, and 249 are allowed";
        assert_eq!(why(1_000_000, 249), words);
    }

    #[test]
    fn clients_ask_for_different_keys() {
        let workload = workload("uniform", 1_000_000);
        let own: std::collections::HashSet<_> = requests(&workload, 0, 1000)
            .into_iter()
            .map(|request| request.key)
            .collect();
        let mut shared = requests(&workload, 1, 1000);
        shared.retain(|request| own.contains(&request.key));
        let shared = shared.len();
        assert!(shared < 10, "{shared} of 1000 keys, 1 expected by chance");
    }

    #[test]
    fn an_unknown_application_lists_the_known_ones() {
        let refused = Workload::parse("memcachier:app4", Settings::default());
        assert_refused(refused, "19, 20, 23");
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        type Setting = fn(&mut Settings);
        let cases: [(Setting, &str); 11] = [
            (|to| to.keys = 0, "keys"),
            (|to| to.clients = 0, "clients"),
            (|to| to.theta = Some(10.5), "theta"),
            (|to| to.theta = Some(f64::NAN), "theta"),
            (|to| to.hot_data = 0.0, "hot data"),
            (|to| to.hot_operations = 1.1, "hot operations"),
            (|to| to.deviation = -1.0, "deviation"),
            (|to| to.drift = f64::INFINITY, "drift"),
            (|to| to.key_size = Some(KeySize::Fixed(5)), "6 to 250 bytes"),
            (|to| to.key_size = Some(KeySize::Fixed(251)), "key size"),
            (
                |to| to.value_size = Some(ValueSize::Fixed(u32::MAX)),
                "value size",
            ),
        ];
        for (set, named) in cases {
            let mut settings = Settings::default();
            set(&mut settings);
            assert_refused(Workload::parse("uniform", settings), named);
        }
    }
}
