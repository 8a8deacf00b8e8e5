//! The signals that a replica receives: one subscription, renewed forever.

use std::time::Duration;

use futures::StreamExt;
use stokehold_supervise::Supervisor;
use tokio::sync::mpsc;

use crate::connection::Primary;
use crate::error::Error;
use crate::queue::{RelayedOutputs, Signal, Work};

/// Number of signals that a replica may fall behind. Beyond it, checking everything again is cheaper.
const BACKLOG: usize = 10_000;

const RECONNECT_MIN: Duration = Duration::from_millis(50);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// Subscribes now, so that no signal sent after this returns is missed, and keeps the subscription alive until the
/// receiver is dropped. After each interruption, [`Signal::Missed`] reports that signals may have been lost.
///
/// The subscription is at the primary, because scripts count their receivers, and Redis counts only the subscribers of
/// its own server.
pub(crate) async fn listen(mut primary: Primary, channels: [String; 2]) -> Result<mpsc::Receiver<Signal>, Error> {
    let messages = subscribe(&mut primary, &channels).await.map_err(Error::redis("subscribe"))?;
    let (sender, receiver) = mpsc::channel(BACKLOG);
    let rounds = Supervisor::default().rounds("redis_signals", Duration::MAX);
    tokio::spawn(async move {
        let mut first = Some(messages);
        while rounds.run_task(forward_all(&mut primary, &channels, first.take(), &sender)).await.is_none() {}
    });
    Ok(receiver)
}

/// Forwards messages, and subscribes again after each interruption, until the receiver is dropped. Without `messages`
/// it subscribes first.
async fn forward_all(
    primary: &mut Primary,
    channels: &[String; 2],
    mut messages: Option<redis::aio::PubSubStream>,
    sender: &mpsc::Sender<Signal>,
) {
    loop {
        if let Some(messages) = &mut messages {
            tokio::select! {
                message = messages.next() => if let Some(message) = message {
                    forward(&message, sender);
                    continue;
                },
                // The primary has moved, and the old one may keep its connection open.
                () = primary.renewed() => {}
                () = sender.closed() => return,
            }
        }
        messages = tokio::select! {
            renewed = resubscribe(primary, channels) => Some(renewed),
            () = sender.closed() => return,
        };
        if sender.send(Signal::Missed).await.is_err() {
            return;
        }
    }
}

async fn subscribe(
    primary: &mut Primary,
    channels: &[String; 2],
) -> Result<redis::aio::PubSubStream, redis::RedisError> {
    let mut subscription = redis::Client::open(primary.info())?.get_async_pubsub().await?;
    subscription.subscribe(channels).await?;
    Ok(subscription.into_on_message())
}

/// The only resubscribe loop: delays double, with full jitter, without limit.
async fn resubscribe(primary: &mut Primary, channels: &[String; 2]) -> redis::aio::PubSubStream {
    let mut wait = RECONNECT_MIN;
    loop {
        match tokio::time::timeout(RECONNECT_MAX, subscribe(primary, channels)).await {
            Ok(Ok(messages)) => return messages,
            Ok(Err(error)) => tracing::warn!(%error, "cannot subscribe to the queue's signals, trying again"),
            Err(_) => tracing::warn!("subscribing to the queue's signals timed out, trying again"),
        }
        tokio::time::sleep(wait.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
        wait = (wait * 2).min(RECONNECT_MAX);
    }
}

/// Forwards a signal. If the receiver is full the signal is dropped; the receiver's regular polls find the same work.
fn forward(message: &redis::Msg, sender: &mpsc::Sender<Signal>) {
    let text: String = message.get_payload().unwrap_or_default();
    let signal = match text.split_once(' ') {
        Some(("wake", waiter)) => waiter.parse().ok().map(Signal::Wake),
        Some(("job", id)) => id.parse().ok().map(Signal::Job),
        Some((RelayedOutputs::WORD, outputs)) => RelayedOutputs::parse(outputs).map(Signal::Outputs),
        Some(("work", word)) => Work::from_word(word).map(Signal::Work),
        None if text == "unmet" => Some(Signal::Unmet),
        _ => None,
    };
    match signal {
        Some(signal) => {
            if sender.try_send(signal).is_err() {
                tracing::warn!("the queue's signals arrive faster than they are read");
            }
        }
        None => tracing::warn!(%text, "a signal is unknown to this version"),
    }
}
