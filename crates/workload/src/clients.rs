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

/// The clients of one run. May be shared between threads.
#[derive(Clone, Debug)]
pub struct Clients {
    workload: Workload,
    /// The clients of a trace take its requests in turn.
    trace: Option<Arc<Mutex<TraceReader>>>,
}

impl Workload {
    /// The clients of one run, all at the beginning of their requests. A trace is opened anew.
    pub fn clients(&self) -> Result<Clients, WorkloadError> {
        let trace = self.open()?;
        Ok(Clients {
            workload: self.clone(),
            trace: trace.map(|trace| Arc::new(Mutex::new(trace))),
        })
    }
}

impl Clients {
    /// The requests of client `client`. Those of a generated workload are its own; of a trace, every
    /// request goes to the client that asks first.
    pub fn client(&self, client: u64) -> ClientStream {
        let workload = self.workload.clone();
        let source = match &self.trace {
            Some(trace) => Source::Trace(Arc::clone(trace)),
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
    Trace(Arc<Mutex<TraceReader>>),
}

impl ClientStream {
    /// The next request; none at the end of a trace. Only a trace can fail, and says where.
    #[inline]
    pub fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        match &mut self.source {
            Source::Generated { stream, states } => {
                let tenant = choose(&self.workload, stream);
                let op = states[tenant].op(stream);
                let number = states[tenant].number(op, stream);
                let tenant = &self.workload.tenants[tenant];
                let seed = self.workload.settings().seed;
                Ok(Some(tenant.request(op, tenant.key(number), seed)))
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
    trace: &Mutex<TraceReader>,
    settings: &Settings,
) -> Result<Option<Request>, TraceError> {
    let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
    let mut next = trace.next_request()?;
    if let Some(request) = &mut next
        && !trace.has_sizes()
    {
        let known = settings.value_size.as_ref();
        request.value_len = known.map_or(UNKNOWN_VALUE_BYTES, |size| {
            size.of(settings.seed, request.key)
        });
    }
    Ok(next)
}

/// The length of values where neither the trace nor the settings say anything.
const UNKNOWN_VALUE_BYTES: u32 = 270;
