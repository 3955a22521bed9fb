//! The clients of a workload, and the requests that each of them makes.

use std::sync::{Arc, Mutex, PoisonError};

use crate::catalog::Workload;
use crate::error::WorkloadError;
use crate::key_id::KeyId;
use crate::mix::Op;
use crate::request::Request;
use crate::sizes::ValueSize;
use crate::stream::Stream;
use crate::tenant::{Tenant, TenantClient};
use crate::trace::{TraceError, TraceReader};
use crate::weighted::Weighted;

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
        let workload = &self.workload;
        let source = match &self.trace {
            Some(trace) => Source::Trace {
                trace: Arc::clone(trace),
                value_size: workload.settings().value_size.clone(),
            },
            None => Source::Generated(Generated {
                stream: Stream::new(workload.settings().seed, client),
                choice: workload.choice.clone(),
                tenants: Arc::clone(&workload.tenants),
                states: workload
                    .tenants
                    .iter()
                    .map(|tenant| tenant.client(client))
                    .collect(),
            }),
        };
        ClientStream {
            seed: workload.settings().seed,
            source,
        }
    }
}

/// The requests of one client: endless, or those of a trace. Not shared between threads.
#[derive(Debug)]
pub struct ClientStream {
    seed: u64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Generated(Generated),
    Trace {
        trace: Arc<Mutex<TraceReader>>,
        value_size: Option<ValueSize>,
    },
}

#[derive(Debug)]
struct Generated {
    stream: Stream,
    choice: Option<Arc<Weighted<usize>>>,
    tenants: Arc<[Tenant]>,
    states: Box<[TenantClient]>,
}

impl ClientStream {
    /// The next request; none at the end of a trace. Only a trace can fail, and says where.
    #[inline]
    pub fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        match &mut self.source {
            Source::Generated(generated) => Ok(Some(generated.next(self.seed))),
            Source::Trace { trace, value_size } => {
                next_of_trace(trace, value_size.as_ref(), self.seed)
            }
        }
    }

    /// One more key for an operation that takes several. None where keys come with operations, in a
    /// trace.
    #[inline]
    pub fn another_key(&mut self, op: Op) -> Option<KeyId> {
        match &mut self.source {
            Source::Generated(generated) => {
                let (tenant, number) = generated.pick(op);
                Some(generated.tenants[tenant].key(number))
            }
            Source::Trace { .. } => None,
        }
    }
}

impl Generated {
    #[inline]
    fn next(&mut self, seed: u64) -> Request {
        let tenant = self.choose();
        let op = self.states[tenant].op(&mut self.stream);
        let number = self.states[tenant].number(op, &mut self.stream);
        let tenant = &self.tenants[tenant];
        tenant.request(op, tenant.key(number), seed)
    }

    #[inline]
    fn pick(&mut self, op: Op) -> (usize, u64) {
        let tenant = self.choose();
        (tenant, self.states[tenant].number(op, &mut self.stream))
    }

    #[inline]
    fn choose(&mut self) -> usize {
        match &self.choice {
            Some(choice) => *choice.choose(self.stream.next_u64()),
            None => 0,
        }
    }
}

/// The next request of a trace. A trace that knows no sizes has those of the settings.
fn next_of_trace(
    trace: &Mutex<TraceReader>,
    value_size: Option<&ValueSize>,
    seed: u64,
) -> Result<Option<Request>, TraceError> {
    let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
    let mut next = trace.next_request()?;
    if let Some(request) = &mut next
        && !trace.has_sizes()
    {
        request.value_len =
            value_size.map_or(UNKNOWN_VALUE_BYTES, |size| size.of(seed, request.key));
    }
    Ok(next)
}

/// The length of values where neither the trace nor the settings say anything.
const UNKNOWN_VALUE_BYTES: u32 = 270;
