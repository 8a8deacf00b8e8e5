//! File descriptors. Every connection takes one, and the usual limit of 1,024 is too low for a server.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors for everything but clients: Redis, S3, webhooks, files.
const OTHERS: u64 = 1_000;

/// Raises this process's limit to the need of `connections`, as far as it is allowed. Returns the number of connections
/// that fit.
pub(crate) fn room_for(connections: usize) -> usize {
    let wanted = connections as u64 + OTHERS;
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return connections };
    let raised = wanted.min(hard);
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, raised.max(soft), hard) {
        Ok(()) => raised.max(soft),
        Err(_) => soft,
    };
    if limit >= wanted {
        return connections;
    }
    // With a very low limit, clients get half of it.
    let room = limit.saturating_sub(OTHERS).max(limit / 2).max(1);
    tracing::warn!(
        limit,
        connections,
        room,
        "the file descriptor limit is too low for the connection limit; raise it (ulimit -n)"
    );
    usize::try_from(room).unwrap_or(connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_served_and_no_more() {
        assert_eq!(room_for(10), 10);
        let most = room_for(usize::MAX / 4);
        assert!((1..usize::MAX / 4).contains(&most), "{most}");
    }
}
