//! The routes of the gateway.

use super::*;

type App = State<Arc<Inner>>;

/// The real gateway's errors for an outage and an invalid token.
pub(super) async fn guard(State(inner): App, request: Request, next: Next) -> Response {
    let route = request.uri().path().trim_start_matches("/worker/v1/").split('/').next().unwrap().to_owned();
    let bearer = bearer(request.headers());
    let refused = inner.change(|seen| {
        *seen.calls.entry(route.clone()).or_default() += 1;
        if seen.down.contains(route.as_str()) {
            return Some(problem(StatusCode::SERVICE_UNAVAILABLE, "unavailable"));
        }
        if seen.expires_at == Some(route.as_str()) {
            seen.expires_at = None;
            seen.token = nonce();
        }
        let is_refused = bearer != seen.token;
        seen.called_with.insert(bearer);
        is_refused.then(|| {
            *seen.unauthorized.entry(route.clone()).or_default() += 1;
            problem(StatusCode::UNAUTHORIZED, "unauthorized")
        })
    });
    match refused {
        Some(refused) => refused,
        None => next.run(request).await,
    }
}

fn bearer(headers: &HeaderMap) -> String {
    headers["authorization"].to_str().unwrap().trim_start_matches("Bearer ").to_owned()
}

fn problem(status: StatusCode, code: &str) -> Response {
    (status, Json(serde_json::json!({"code": code, "detail": "as the test wants it"}))).into_response()
}

pub(super) async fn join(State(inner): App, headers: HeaderMap, Json(request): Json<JoinRequest>) -> Response {
    let (token, with) = (format!("wt_{}", nonce()), bearer(&headers));
    assert!(with.starts_with("jt_"), "{with}");
    inner.change(|seen| seen.joined_with.push(with.clone()));
    let mut changes = inner.changed.subscribe();
    while inner.seen.lock().unwrap().joins_held {
        changes.changed().await.unwrap();
    }
    let (rejoin_token, is_spent) = inner.change(|seen| {
        let is_spent = seen.spent.contains(&with);
        if !is_spent {
            seen.joins.push(request);
            seen.token.clone_from(&token);
        }
        (seen.rejoin_token.clone(), is_spent)
    });
    if is_spent {
        return problem(StatusCode::UNAUTHORIZED, "unauthorized");
    }
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap();
    let reply = JoinReply {
        worker_id: "w_test".to_owned(),
        token,
        token_ttl_ms: 3_600_000,
        lease_ms: millis(inner.heartbeat.lease),
        extend_every_ms: millis(inner.heartbeat.every),
        rejoin_token,
        resume: Some("w_test.proof".to_owned()),
    };
    Json(reply).into_response()
}

pub(super) async fn lease(State(inner): App, Json(request): Json<LeaseRequest>) -> Json<LeaseReply> {
    let mut changes = inner.changed.subscribe();
    let finished = inner.change(|seen| {
        seen.reach_gib = request.offer.reach_gib;
        let named = |warm: &WarmModel| format!("{}@{}", warm.model.endpoint, warm.model.version);
        seen.warm = request.offer.warm.iter().map(named).collect();
        seen.finish(request.finish)
    });
    let granted = async {
        loop {
            {
                let mut seen = inner.seen.lock().unwrap();
                let count = seen.queued.len().min(request.want as usize);
                let mut leases: Vec<LeasedJob> = seen.queued.drain(..count).collect();
                for job in &mut leases {
                    job.behind = seen.queued.iter().filter(|other| other.endpoint == job.endpoint).count() as u64;
                }
                seen.held.extend(leases.iter().map(|job| (lease_of(job), job.clone())));
                seen.extended_at.extend(leases.iter().map(|job| (lease_of(job), Instant::now())));
                if !leases.is_empty() || request.want == 0 {
                    return leases;
                }
            }
            changes.changed().await.unwrap();
        }
    };
    let leases = timeout(Duration::from_millis(request.wait_ms), granted).await.unwrap_or_default();
    Json(LeaseReply { leases, finished })
}

pub(super) async fn extend(State(inner): App, Json(request): Json<ExtendRequest>) -> Json<ExtendReply> {
    inner.change(|seen| {
        let answer =
            |lease: &LeaseRef| if seen.held.contains_key(lease) { ExtendAnswer::Held } else { ExtendAnswer::Lost };
        let leases = request.leases.iter().map(answer).collect();
        seen.reap(&request.leases);
        seen.learned.extend(request.status.learned.iter().cloned());
        seen.status = request.status;
        seen.extended = request.leases;
        Json(ExtendReply { leases, keep: Some(seen.keep.clone()), next: seen.next.clone(), ..ExtendReply::default() })
    })
}

pub(super) async fn finish(State(inner): App, Json(request): Json<FinishRequest>) -> Json<FinishReply> {
    let finished = inner.change(|seen| {
        seen.reach_gib = request.offer.map_or(seen.reach_gib, |offer| offer.reach_gib);
        seen.finish(request.finish)
    });
    Json(FinishReply { finished, offer_taken: true })
}

pub(super) async fn release(State(inner): App, Json(request): Json<ReleaseRequest>) -> Json<ReleaseReply> {
    let released = inner.change(|seen| {
        let release = |lease: &LeaseRef| match seen.requeue(lease) {
            Some(job) => {
                seen.released.push(job);
                FinishAnswer::Ok
            }
            None => FinishAnswer::StaleFence,
        };
        request.leases.iter().map(release).collect()
    });
    Json(ReleaseReply { released })
}

pub(super) async fn events(State(inner): App, Json(request): Json<EventsRequest>) -> Response {
    let jobs: Vec<JobId> = request.events.iter().map(|report| report.job_id).collect();
    let reply = inner.change(|seen| {
        let kept = if request.outputs == OutputHandling::Relay { &mut seen.relayed } else { &mut seen.events };
        for report in request.events {
            kept.entry(report.job_id).or_default().push(report.event);
        }
        let is_needed = request.outputs == OutputHandling::Relay && seen.has_new_reader;
        EventsReply { store: if is_needed { jobs } else { Vec::new() } }
    });
    if !reply.store.is_empty() { Json(reply).into_response() } else { StatusCode::NO_CONTENT.into_response() }
}

pub(super) async fn uploads(State(inner): App, Json(request): Json<UploadsRequest>) -> Response {
    let lease = LeaseRef { job_id: request.job_id, fence: request.fence };
    if !inner.seen.lock().unwrap().held.contains_key(&lease) {
        return problem(StatusCode::CONFLICT, "stale_fence");
    }
    let upload = |file: &stokehold_protocol::gateway::UploadFile| Upload {
        url: format!("{}/objects/{}/{}", inner.url, lease.job_id, file.name),
        headers: BTreeMap::from([
            ("content-length".to_owned(), file.size_bytes.to_string()),
            ("content-type".to_owned(), file.content_type.clone()),
            ("x-test-sha256".to_owned(), file.sha256.clone()),
        ]),
    };
    Json(UploadsReply { uploads: request.files.iter().map(upload).collect() }).into_response()
}

pub(super) async fn secrets(State(inner): App, Json(_): Json<SecretsRequest>) -> Json<SecretsReply> {
    Json(SecretsReply { secrets: inner.seen.lock().unwrap().secrets.clone() })
}

pub(super) async fn endpoint(State(inner): App, Path((_, name, _)): Path<(String, String, u32)>) -> Response {
    let seen = inner.seen.lock().unwrap();
    match seen.endpoints.get(&name) {
        Some(spec) => Json(spec.clone()).into_response(),
        None if seen.deleted.contains(&name) => problem(StatusCode::NOT_FOUND, "unknown_version"),
        None => problem(StatusCode::NOT_FOUND, "not_found"),
    }
}

pub(super) async fn package(State(inner): App, Path(sha256): Path<String>) -> Vec<u8> {
    inner.change(|seen| {
        seen.fetched += 1;
        seen.packages[&sha256].clone()
    })
}

/// A store that checks signatures.
pub(super) async fn object(State(inner): App, Path(key): Path<String>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if headers.get("x-test-sha256").unwrap() != hex::encode(Sha256::digest(&body)).as_str() {
        return StatusCode::BAD_REQUEST;
    }
    let (status, fault) = inner.change(|seen| {
        seen.puts += 1;
        seen.put.insert(key.clone());
        let fault = seen.put_faults.pop_front();
        if seen.away || matches!(fault, Some(PutFault::Busy)) {
            return (StatusCode::SERVICE_UNAVAILABLE, fault);
        }
        seen.objects.insert(key, body);
        (StatusCode::OK, fault)
    });
    if let Some(PutFault::Lost) = fault {
        // The connection closes with its task, without an answer.
        std::panic::resume_unwind(Box::new(()));
    }
    status
}
