//! The clients of a workload, and the requests that each of them makes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::catalog::Workload;
use crate::error::WorkloadError;
use crate::key_id::KeyId;
use crate::mix::Op;
use crate::request::Request;
use crate::settings::Settings;
use crate::stream::Stream;
use crate::tenant::TenantClient;
use crate::trace::{TraceError, TraceReader};
use crate::turns::{Lines, Turn};

/// A trace whose clients take its requests in turn.
#[derive(Clone, Debug)]
struct SharedTrace {
    reader: Arc<Mutex<TraceReader>>,
    lines: Arc<Lines>,
}

/// The clients of one run. May be shared between threads.
#[derive(Clone, Debug)]
pub struct Clients {
    workload: Workload,
    trace: Option<SharedTrace>,
}

impl Workload {
    /// The clients of one run, all at the beginning of their requests. A trace is opened anew.
    pub fn clients(&self) -> Result<Clients, WorkloadError> {
        let trace = self.open()?;
        Ok(Clients {
            workload: self.clone(),
            trace: trace.map(|trace| SharedTrace {
                reader: Arc::new(Mutex::new(trace)),
                lines: Arc::default(),
            }),
        })
    }
}

impl Clients {
    /// The requests of client `client`. Those of a generated workload are its own; of a trace, every
    /// request goes to the client that asks first.
    pub fn client(&self, client: u64) -> ClientStream {
        let workload = self.workload.clone();
        let source = match &self.trace {
            Some(trace) => Source::Trace(trace.clone()),
            None => Source::Generated {
                stream: Stream::new(workload.settings().seed, client),
                states: workload
                    .tenants
                    .iter()
                    .map(|tenant| tenant.client(client))
                    .collect(),
            },
        };
        ClientStream { workload, source }
    }
}

/// The requests of one client: endless, or those of a trace. Not shared between threads.
#[derive(Debug)]
pub struct ClientStream {
    workload: Workload,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Generated {
        stream: Stream,
        states: Box<[TenantClient]>,
    },
    Trace(SharedTrace),
}

impl ClientStream {
    /// The next request; none at the end of a trace. Only a trace can fail, and says where.
    #[inline]
    pub fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        let next = self.next_in_turn()?;
        Ok(next.map(|(request, _)| request))
    }

    /// The same with the turn of the request, for clients that make theirs at the same time: of a trace, the requests
    /// of each key are made in its order.
    #[inline]
    pub fn next_in_turn(&mut self) -> Result<Option<(Request, Turn)>, TraceError> {
        match &mut self.source {
            Source::Generated { stream, states } => {
                let tenant = choose(&self.workload, stream);
                let op = states[tenant].op(stream);
                let number = states[tenant].number(op, stream);
                let tenant = &self.workload.tenants[tenant];
                let seed = self.workload.settings().seed;
                let request = tenant.request(op, tenant.key(number), seed);
                Ok(Some((request, Turn::FREE)))
            }
            Source::Trace(trace) => next_of_trace(trace, self.workload.settings()),
        }
    }

    /// One more key for an operation that takes several. None where keys come with operations, in a
    /// trace.
    #[inline]
    pub fn another_key(&mut self, op: Op) -> Option<KeyId> {
        let Source::Generated { stream, states } = &mut self.source else {
            return None;
        };
        let tenant = choose(&self.workload, stream);
        let number = states[tenant].number(op, stream);
        Some(self.workload.tenants[tenant].key(number))
    }
}

/// Which tenant the next request is from.
#[inline]
fn choose(workload: &Workload, stream: &mut Stream) -> usize {
    match &workload.choice {
        Some(choice) => *choice.choose(stream.next_u64()),
        None => 0,
    }
}

/// The next request of a trace. A trace that knows no sizes has those of the settings.
fn next_of_trace(
    trace: &SharedTrace,
    settings: &Settings,
) -> Result<Option<(Request, Turn)>, TraceError> {
    let mut reader = trace.reader.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut request) = reader.next_request()? else {
        return Ok(None);
    };
    if !reader.has_sizes() {
        let known = settings.value_size.as_ref();
        request.value_len = known.map_or(UNKNOWN_VALUE_BYTES, |size| {
            size.of(settings.seed, request.key)
        });
    }
    let turn = trace.lines.join(request.key);
    Ok(Some((request, turn)))
}

/// The length of values where neither the trace nor the settings say anything.
const UNKNOWN_VALUE_BYTES: u32 = 270;
