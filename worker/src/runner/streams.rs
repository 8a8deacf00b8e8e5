//! Reads a runner's socket and its two standard streams.

use std::collections::VecDeque;
use std::future::pending;
use std::io::{self, ErrorKind};

use tokio::net::unix::OwnedReadHalf;
use tokio::net::unix::pipe::Receiver;

const READ_BYTES: usize = 64 * 1024;

/// Source of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Wire,
    Stdout,
    Stderr,
}

/// Bytes and their source. `None` at the end of the source.
pub(super) type Chunk = (Source, Option<Vec<u8>>);

/// The open sources.
pub(super) struct Streams {
    wire: Option<OwnedReadHalf>,
    stdout: Option<Receiver>,
    stderr: Option<Receiver>,
    waiting: VecDeque<Chunk>,
    buffer: Vec<u8>,
}

impl Streams {
    pub(super) fn new(wire: OwnedReadHalf, stdout: Receiver, stderr: Receiver) -> Self {
        let (stdout, stderr) = (Some(stdout), Some(stderr));
        Self { wire: Some(wire), stdout, stderr, waiting: VecDeque::new(), buffer: vec![0; READ_BYTES] }
    }

    /// The next bytes; `None` when all sources have ended. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Chunk> {
        loop {
            if let Some(chunk) = self.waiting.pop_front() {
                return Some(chunk);
            }
            if self.wire.is_none() && self.stdout.is_none() && self.stderr.is_none() {
                return None;
            }
            tokio::select! {
                () = printed(self.stdout.as_ref()) => self.take(Source::Stdout, true),
                () = printed(self.stderr.as_ref()) => self.take(Source::Stderr, true),
                () = received(self.wire.as_ref()) => {
                    let received = self.wire.as_ref().map(|wire| wire.try_read(&mut self.buffer));
                    let received = self.bytes(received);
                    // Output that was printed before the end of a run belongs to the run. The runtime may not have
                    // noticed it yet.
                    self.take(Source::Stdout, false);
                    self.take(Source::Stderr, false);
                    self.keep(Source::Wire, received);
                }
            }
        }
    }

    /// Reads the bytes that are in a pipe now, after the runtime reported them or without waiting for it.
    fn take(&mut self, source: Source, is_known: bool) {
        let pipe = if source == Source::Stdout { self.stdout.as_ref() } else { self.stderr.as_ref() };
        let buffer = &mut self.buffer;
        let read = pipe.map(|pipe| if is_known { pipe.try_read(buffer) } else { Ok(nix::unistd::read(pipe, buffer)?) });
        let bytes = self.bytes(read);
        self.keep(source, bytes);
    }

    /// The result of a read: `None` if there was nothing to read, `Some(None)` at the end.
    fn bytes(&self, read: Option<io::Result<usize>>) -> Option<Option<Vec<u8>>> {
        match read? {
            Ok(count @ 1..) => Some(Some(self.buffer[..count].to_vec())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Ok(0) | Err(_) => Some(None),
        }
    }

    fn keep(&mut self, source: Source, bytes: Option<Option<Vec<u8>>>) {
        let Some(bytes) = bytes else { return };
        if bytes.is_none() {
            match source {
                Source::Wire => self.wire = None,
                Source::Stdout => self.stdout = None,
                Source::Stderr => self.stderr = None,
            }
        }
        self.waiting.push_back((source, bytes));
    }
}

/// Waits until a pipe is readable. Errors are handled by the read.
async fn printed(pipe: Option<&Receiver>) {
    match pipe {
        Some(pipe) => ignore(pipe.readable().await),
        None => pending().await,
    }
}

async fn received(wire: Option<&OwnedReadHalf>) {
    match wire {
        Some(wire) => ignore(wire.readable().await),
        None => pending().await,
    }
}

fn ignore(_: io::Result<()>) {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;
    use tokio::net::unix::pipe;

    use super::*;

    #[tokio::test]
    async fn what_was_printed_comes_before_later_messages() {
        for _ in 0..100 {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let ((mut stdout, out), (mut stderr, err)) = (pipe::pipe().unwrap(), pipe::pipe().unwrap());
            let (reader, _writer) = ours.into_split();
            let mut streams = Streams::new(reader, out, err);
            let seen = tokio::spawn(async move {
                let mut seen = Vec::new();
                while let Some((source, bytes)) = streams.next().await {
                    seen.extend(bytes.map(|_| source));
                }
                seen
            });
            stderr.write_all(b"warning").await.unwrap();
            stdout.write_all(b"printed").await.unwrap();
            theirs.write_all(b"done").await.unwrap();
            drop((theirs, stdout, stderr));
            let seen = seen.await.unwrap();
            assert_eq!(seen.last(), Some(&Source::Wire), "{seen:?}");
            assert_eq!(seen.len(), 3);
        }
    }
}
