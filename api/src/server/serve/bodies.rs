//! Bodies of a request and a response, which track how long they are in transit.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

use crate::server::serve::connection_limit::{Busy, Sending};

/// A request's body, from its first byte until it has ended or is no longer needed.
pub(super) struct Asking {
    body: Incoming,
    sending: Option<Sending>,
}

impl Asking {
    pub(super) fn new(body: Incoming, sending: Sending) -> Self {
        let sending = Some(sending).filter(|_| !body.is_end_stream());
        Self { body, sending }
    }
}

impl HttpBody for Asking {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) || self.body.is_end_stream() {
            self.sending = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response's body. Its request is open until the last byte is taken, which for an event stream is most of its time.
pub(super) struct Answering {
    body: Body,
    _busy: Busy,
}

impl Answering {
    pub(super) fn new(body: Body, busy: Busy) -> Self {
        Self { body, _busy: busy }
    }
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
