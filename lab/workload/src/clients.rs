//! The clients of a workload, and their requests.

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
    /// Returns the clients of one run, all at the start of their requests. Opens a trace anew.
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
    /// Returns the requests of client `client`. In a generated workload each client has its own requests. In
    /// a trace, every request goes to the client that asks first.
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

/// The requests of one client: endless, or the requests of a trace. Not shared between threads.
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
    /// Returns the next request, or `None` at the end of a trace. Only a trace can fail; the error names the
    /// line.
    #[inline]
    pub fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        let next = self.next_in_turn()?;
        Ok(next.map(|(request, _)| request))
    }

    /// Returns the next request and its turn, for clients that run at the same time: a trace's requests of
    /// one key are made in the trace's order.
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

    /// Returns one more key for an operation that takes several. Returns `None` in a trace, where every key
    /// has its own operation.
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

/// Returns the index of the tenant of the next request.
#[inline]
fn choose(workload: &Workload, stream: &mut Stream) -> usize {
    match &workload.choice {
        Some(choice) => *choice.choose(stream.next_u64()),
        None => 0,
    }
}

/// Returns the next request of a trace. If the trace states no sizes, the settings decide them.
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

/// Length of values, in bytes, if neither the trace nor the settings state one.
const UNKNOWN_VALUE_BYTES: u32 = 270;
