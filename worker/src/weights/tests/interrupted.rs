//! Interrupted downloads are resumed, and servers that fail or change are handled.

use super::*;

#[tokio::test]
async fn a_download_cut_three_times_goes_on_where_it_was_and_is_never_seen_half() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let blob = dir.path().join("weights").join(sha256(&body));
    let seen = Arc::new(AtomicUsize::new(0));
    let (served, look, count) = (body.clone(), blob.clone(), Arc::clone(&seen));
    let server = Server::start(move |asked| {
        count.fetch_add(usize::from(look.exists()), Ordering::SeqCst);
        let reply = Reply::part(asked, &served).header("etag", "\"v1\"");
        if matches!(asked.turn, 2 | 5 | 9) { reply.cut_after(20_000) } else { reply }
    })
    .await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert_eq!(seen.load(Ordering::SeqCst), 0, "it was there before it was verified");
    assert!(blob.exists());
    assert_eq!(server.sent_bytes(), SIZE as u64, "a byte that had come was asked for again");
    assert_eq!(server.asked().len(), 17 + 3);
    let all_but_first = &server.asked()[1..];
    assert!(all_but_first.iter().all(|asked| asked.headers.get("if-range").is_some_and(|etag| etag == "\"v1\"")));
}

/// A kill -9 leaves the same as a dropped future: files, and no lock.
#[tokio::test]
async fn a_killed_download_goes_on_in_the_next_process() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    for stop in [3, 8, 2] {
        let (reached, mut reach) = mpsc::unbounded_channel();
        let served = body.clone();
        let server = Server::start(move |asked| {
            if asked.turn < stop {
                return Reply::part(asked, &served);
            }
            // One range after the other: earlier ones are on disk.
            reached.send(()).unwrap();
            Reply::part(asked, &served).cut_after(0).hanging()
        })
        .await;
        let weights = open_with(&dir, 1 << 30, Limits { parallel: 1, ..SMALL });
        let files = [file("m", &server.origin, &body)];
        tokio::select! {
            outcome = weights.get(&files, &quiet) => panic!("{outcome:?}"),
            _ = reach.recv() => {}
        }
        assert!(left(&dir).iter().all(|name| name.starts_with('.')), "{:?}", left(&dir));
    }
    let served = body.clone();
    let server = Server::start(move |asked| Reply::part(asked, &served)).await;
    // Cut off in the middle of a line, as by a power failure.
    let journal = dir.path().join("weights").join(format!(".journal-{}", sha256(&body)));
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, format!("{text}0 10485")).unwrap();
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await;
    assert_eq!(fs::read(set.unwrap().folder.join("m")).unwrap(), body);
    assert_eq!(left(&dir), [sha256(&body)]);
    assert_eq!(server.sent_bytes(), (SIZE - (3 + 8 + 2) * PIECE) as u64);
}

#[tokio::test]
async fn a_wrong_beginning_of_an_earlier_download_does_not_spoil_the_next() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| Reply::part(asked, &served)).await;
    let weights = open(&dir);
    let place = |prefix: &str| dir.path().join("weights").join(format!("{prefix}{}", sha256(&body)));
    // The journal was flushed to disk, the bytes were not.
    fs::write(place(".partial-"), vec![0; SIZE]).unwrap();
    fs::write(place(".journal-"), format!("size {SIZE}\n0 {PIECE}\n")).unwrap();
    let set = weights.get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert_eq!(server.sent_bytes(), (2 * SIZE - PIECE) as u64);
}

#[tokio::test]
async fn a_server_without_ranges_is_read_in_one_stream_from_the_start() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| {
        let reply = Reply::new("200 OK", &served);
        if asked.turn == 0 { reply.cut_after(SIZE / 2) } else { reply }
    })
    .await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_is_waited_for() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| match asked.turn {
        0 | 4 => Reply::new("503 Service Unavailable", b"later"),
        6 => Reply::new("429 Too Many Requests", b""),
        _ => Reply::part(asked, &served),
    })
    .await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert_eq!(server.sent_bytes(), (SIZE + "later".len() * 2) as u64);
}

#[tokio::test]
async fn a_stalled_download_ends_at_its_timeout_and_what_has_come_is_kept() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| match asked.turn {
        0 | 1 => Reply::part(asked, &served),
        _ => Reply::new("502 Bad Gateway", b""),
    })
    .await;
    let hasty = Limits { stall_timeout: Duration::from_millis(300), parallel: 1, ..SMALL };
    let weights = open_with(&dir, 1 << 30, hasty);
    let error = weights.get(&[file("m", &server.origin, &body)], &quiet).await.unwrap_err();
    assert!(matches!(&error, Error::Fetch { path, why } if path == "m" && why.contains("502")), "{error}");
    let served = body.clone();
    let server = Server::start(move |asked| Reply::part(asked, &served)).await;
    weights.get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(server.sent_bytes(), (SIZE - 2 * PIECE) as u64);
}

#[tokio::test]
async fn a_silent_server_is_left_and_asked_again() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| {
        let reply = Reply::part(asked, &served);
        if asked.turn == 1 { reply.cut_after(10_000).hanging() } else { reply }
    })
    .await;
    let weights = open_with(&dir, 1 << 30, Limits { idle: Duration::from_millis(500), ..SMALL });
    weights.get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(server.sent_bytes(), SIZE as u64);
}

#[tokio::test]
async fn a_file_that_changes_midway_is_begun_anew() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let (old, new) = (content(7, SIZE), body.clone());
    let server = Server::start(move |asked| match (asked.turn, asked.headers.get("if-range").map(String::as_str)) {
        (0..5, _) => Reply::part(asked, &old).header("etag", "\"old\""),
        // As the standard requires: the condition fails, so the full content is sent.
        (_, Some("\"old\"")) => Reply::new("200 OK", &new).header("etag", "\"new\"").cut_after(0),
        _ => Reply::part(asked, &new).header("etag", "\"new\""),
    })
    .await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
}

#[tokio::test]
async fn servers_that_never_agree_on_a_version_are_read_in_one_stream() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server =
        Server::start(move |asked| Reply::part(asked, &served).header("etag", &format!("W/\"{}\"", asked.turn))).await;
    let set = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap();
    assert_eq!(fs::read(set.folder.join("m")).unwrap(), body);
    assert!(server.asked().last().unwrap().range().is_none());
}

#[tokio::test]
async fn an_address_that_expires_midway_is_named_and_a_new_one_goes_on() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, SIZE));
    let served = body.clone();
    let server = Server::start(move |asked| match (asked.target.as_str(), asked.turn) {
        ("/old?sig=canary", 4..) => Reply::new("403 Forbidden", b"<Code>AccessDenied</Code>"),
        _ => Reply::part(asked, &served),
    })
    .await;
    let weights = open_with(&dir, 1 << 30, Limits { parallel: 1, ..SMALL });
    let file = |target: &str| [file("m", &format!("{}{target}", server.origin), &body)];
    let error = weights.get(&file("/old?sig=canary"), &quiet).await.unwrap_err();
    assert!(matches!(&error, Error::Expired { path } if path == "m"), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"));
    weights.get(&file("/new"), &quiet).await.unwrap();
    assert_eq!(server.sent_bytes(), (SIZE + "<Code>AccessDenied</Code>".len()) as u64);
}

#[tokio::test]
async fn an_address_that_had_expired_before_differs_from_a_refusal() {
    let (dir, body) = (tempfile::tempdir().unwrap(), content(1, 10));
    for (status, text, expired) in [
        ("403 Forbidden", "<Message>Request has expired</Message>", true),
        ("400 Bad Request", "<Code>ExpiredToken</Code>", true),
        ("403 Forbidden", "<Code>AccessDenied</Code>", false),
        ("404 Not Found", "expired", false),
    ] {
        let server = Server::start(move |_| Reply::new(status, text.as_bytes())).await;
        let error = open(&dir).get(&[file("m", &server.origin, &body)], &quiet).await.unwrap_err();
        assert_eq!(matches!(error, Error::Expired { .. }), expired, "{error}");
        assert!(expired || matches!(error, Error::Refused { .. }), "{error}");
        assert_eq!(server.asked().len(), 1, "another try would end the same");
    }
    assert!(left(&dir).is_empty(), "room is kept for nothing");
}
