//! Connections of clients: their number is limited, and a client that does not read its answer loses its connection.

use axum_server::accept::Accept;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Maximum number of connections at a time.
pub const MOST: usize = 256;
/// How long written bytes may wait for the client.
const PATIENCE: Duration = Duration::from_secs(30);

/// Limits the number of connections. Those beyond the limit are closed immediately.
#[derive(Clone, Debug)]
pub struct Limited {
    free: Arc<Semaphore>,
    patience: Duration,
}

impl Limited {
    /// Accepts up to [`MOST`] connections.
    pub fn new() -> Limited {
        Limited { free: Arc::new(Semaphore::new(MOST)), patience: PATIENCE }
    }

    fn guard<I>(&self, stream: I) -> io::Result<Guarded<I>> {
        let permit = self.free.clone().try_acquire_owned().map_err(|_| io::ErrorKind::ConnectionRefused)?;
        Ok(Guarded { stream, waiting: None, patience: self.patience, _permit: permit })
    }
}

impl<S> Accept<TcpStream, S> for Limited {
    type Stream = Guarded<TcpStream>;
    type Service = S;
    type Future = std::future::Ready<io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let done = stream.set_nodelay(true).and_then(|()| Ok((self.guard(stream)?, service)));
        std::future::ready(done)
    }
}

/// A connection that counts against the limit.
pub struct Guarded<I> {
    stream: I,
    /// Fires when written bytes have waited too long.
    waiting: Option<Pin<Box<Sleep>>>,
    patience: Duration,
    _permit: OwnedSemaphorePermit,
}

impl<I> Guarded<I> {
    /// Passes on the result of a write, unless it has waited too long.
    fn in_time<T>(&mut self, context: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.waiting = None;
            return done;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Guarded<I> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Guarded<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.in_time(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.in_time(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.in_time(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn connections_are_limited_and_free_their_place() {
        let limited = Limited::new();
        let mut all: Vec<_> = (0..MOST).map(|_| limited.guard(()).unwrap()).collect();
        assert_eq!(limited.guard(()).err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
        all.pop();
        assert!(limited.guard(()).is_ok());
    }

    #[test]
    fn a_reader_that_does_not_read_is_dropped_and_a_slow_one_is_not() {
        run(async {
            let limited = Limited { patience: Duration::from_millis(50), ..Limited::new() };
            let (ours, mut theirs) = duplex(1_000);
            let mut guarded = limited.guard(ours).unwrap();
            let reading = async {
                // In total this takes longer than the patience, but no single write does.
                for _ in 0..10 {
                    sleep(Duration::from_millis(10)).await;
                    theirs.read_exact(&mut [0; 1_000]).await.unwrap();
                }
                theirs
            };
            // After a delay of this process, both times may have passed: then the reader is first.
            let (_theirs, written) = tokio::join!(biased; reading, guarded.write_all(&[7; 10_000]));
            written.unwrap();
            let refused = guarded.write_all(&[7; 10_000]).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        });
    }
}
