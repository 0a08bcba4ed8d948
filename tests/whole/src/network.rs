//! The network between processes and servers: connections in memory, on true time.
//!
//! A connection is two queues of pieces, each with the moment at which it arrives. Where somebody is cut off nothing arrives; what
//! waits for longer than [`HELD_MAX`] is lost together with its connection, so that nothing is older than that when it comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::UnboundedSender;

/// Bytes that are under way one way at most; then the writer waits.
const WAY_LEN_MAX: usize = 1 << 20;
/// What is held up for longer does not arrive any more. It is less than the margin of leases.
const HELD_MAX: Duration = Duration::from_secs(3);
/// The longest time that a piece takes when nothing is wrong.
const LATENCY_MAX_MICROS: u64 = 8_000;

/// One process from its start to its end.
pub(crate) type ProcessId = u64;

/// A connection that has come to a server.
pub(crate) struct Arrival {
    pub(crate) end: End,
    pub(crate) from: ProcessId,
}

/// All connections. Clones are the same network.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<State>>);

struct State {
    now: Duration,
    chance: fastrand::Rng,
    listeners: BTreeMap<String, UnboundedSender<Arrival>>,
    links: BTreeMap<u64, Link>,
    made: u64,
    cut: BTreeSet<(ProcessId, String)>,
    /// Who waits for a connection from where they are cut off.
    dialing: Vec<Waker>,
}

struct Link {
    from: ProcessId,
    to: String,
    /// To the server and back.
    ways: [Way; 2],
    held_since: Option<Duration>,
    broken: bool,
}

#[derive(Default)]
struct Way {
    pieces: VecDeque<(Duration, Bytes)>,
    len: usize,
    last: Duration,
    /// Whoever wrote here has gone.
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Way {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        Network(Arc::new(Mutex::new(State {
            now: Duration::ZERO,
            chance: fastrand::Rng::with_seed(seed),
            listeners: BTreeMap::new(),
            links: BTreeMap::new(),
            made: 0,
            cut: BTreeSet::new(),
            dialing: Vec::new(),
        })))
    }

    /// True time since the beginning.
    pub(crate) fn now(&self) -> Duration {
        self.0.lock().now
    }

    /// Connections to `address` come out of `arrivals`.
    pub(crate) fn listen(&self, address: &str, arrivals: UnboundedSender<Arrival>) {
        self.0.lock().listeners.insert(address.to_owned(), arrivals);
    }

    /// Connects a process to an address; waits for as long as it is cut off from there.
    pub(crate) async fn dial(self, from: ProcessId, to: String) -> io::Result<End> {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.cut.contains(&(from, to.clone())) {
                state.dialing.push(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let (listener, id) = {
            let mut state = self.0.lock();
            let listener = state.listeners.get(&to).cloned().ok_or_else(refused)?;
            let id = state.made;
            state.made += 1;
            let link = Link {
                from,
                to,
                ways: Default::default(),
                held_since: None,
                broken: false,
            };
            state.links.insert(id, link);
            (listener, id)
        };
        let [client, end] = [0, 1].map(|side| End {
            network: self.clone(),
            link: id,
            side,
        });
        listener.send(Arrival { end, from }).map_err(|_| refused())?;
        Ok(client)
    }

    /// Time passes: what has arrived by `now` wakes its readers.
    pub(crate) fn advance(&self, now: Duration) {
        let mut state = self.0.lock();
        state.now = now;
        for link in state.links.values_mut().filter(|link| link.held_since.is_none()) {
            for way in &mut link.ways {
                let due = way.pieces.front().is_some_and(|(at, _)| *at <= now);
                if (due || (way.closed && way.pieces.is_empty()))
                    && let Some(reader) = way.reader.take()
                {
                    reader.wake();
                }
            }
        }
    }

    /// Nothing gets through between a process and an address, or everything again.
    pub(crate) fn cut(&self, from: ProcessId, to: &str, cut: bool) {
        let mut state = self.0.lock();
        let now = state.now;
        let place = (from, to.to_owned());
        if cut {
            state.cut.insert(place);
        } else {
            state.cut.remove(&place);
        }
        state.dialing.drain(..).for_each(Waker::wake);
        let between = |link: &&mut Link| link.from == from && link.to == to;
        for link in state.links.values_mut().filter(between) {
            match (cut, link.held_since) {
                (true, None) => link.held_since = Some(now),
                (false, Some(since)) => {
                    link.held_since = None;
                    link.broken |= now - since > HELD_MAX;
                    link.ways.iter_mut().for_each(Way::wake);
                }
                _ => {}
            }
        }
    }

    /// The process is no more. What it sent last may be lost with it.
    pub(crate) fn ended(&self, process: ProcessId, lost: bool) {
        let mut state = self.0.lock();
        state.cut.retain(|(from, _)| *from != process);
        for link in state.links.values_mut().filter(|link| link.from == process) {
            let held = link.held_since.take().is_some();
            if lost || held {
                link.broken = true;
            }
            link.ways.iter_mut().for_each(Way::wake);
        }
    }
}

/// One end of a connection.
pub(crate) struct End {
    network: Network,
    link: u64,
    /// 0 for who has connected.
    side: usize,
}

impl AsyncRead for End {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.network.0.lock();
        let now = state.now;
        let Some(link) = state.links.get_mut(&self.link).filter(|link| !link.broken) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        let held = link.held_since.is_some();
        let way = &mut link.ways[1 - self.side];
        let mut read = false;
        while let Some((at, piece)) = way.pieces.front_mut()
            && *at <= now
            && !held
            && buf.remaining() > 0
        {
            let len = piece.len().min(buf.remaining());
            buf.put_slice(&piece[..len]);
            piece.advance(len);
            way.len -= len;
            read = true;
            if piece.is_empty() {
                way.pieces.pop_front();
            }
        }
        if read {
            if let Some(writer) = way.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Ok(()));
        }
        if way.closed && way.pieces.is_empty() && !held {
            return Poll::Ready(Ok(()));
        }
        way.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.network.0.lock();
        let latency = Duration::from_micros(state.chance.u64(200..LATENCY_MAX_MICROS));
        let now = state.now;
        let Some(link) = state.links.get_mut(&self.link).filter(|link| !link.broken) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        if link.ways[1 - self.side].closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let way = &mut link.ways[self.side];
        if way.len >= WAY_LEN_MAX {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        way.last = way.last.max(now + latency);
        way.len += buf.len();
        way.pieces.push_back((way.last, Bytes::copy_from_slice(buf)));
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.network.0.lock();
        if let Some(link) = state.links.get_mut(&self.link) {
            link.ways[self.side].closed = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.network.0.lock();
        let Some(link) = state.links.get_mut(&self.link) else {
            return;
        };
        let other_gone = link.ways[1 - self.side].closed;
        link.ways[self.side].closed = true;
        if other_gone {
            state.links.remove(&self.link);
        }
    }
}
