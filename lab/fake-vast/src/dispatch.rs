//! Processing of a call: route, faults, authorisation, rate limits, action.

use serde_json::{Value, json};
use stokehold_vast::{Route, code};

use crate::faults::{Fault, Point};
use crate::limits;
use crate::market::Market;
use crate::time::seconds;
use crate::wire::{Answer, Delivery, Request};

impl Market {
    pub(crate) fn route(&mut self, request: &Request) -> Answer {
        if let Some(token) = request.path.strip_prefix("/_logs/") {
            return self.read_result(token);
        }
        let Some((route, id)) = Route::of(&request.method, &request.path) else {
            return Answer::error(404, code::NOT_FOUND, "There is no such route");
        };
        // Where the slash is missing a browser would be sent on; most clients lose the body on the way.
        if !request.path.ends_with('/') && route != Route::User {
            return Answer::typed(308, "text/html", Vec::new()).with("location", &format!("{}/", request.path));
        }
        let faults = self.faults.drawn(Point::Call(route), seconds(self.now_ms), &mut self.chaos);
        if let Some(answer) = self.fail_before(&faults) {
            return answer;
        }
        if let Err(answer) = self.authorise(route, id, request) {
            return answer;
        }
        let caller = request.bearer().unwrap_or_default();
        if let Some(answer) = self.limits.refuse(&self.settings, route, caller, self.now_ms, &mut self.chaos) {
            return answer;
        }
        let answer = self.perform(route, id, request, &faults);
        fail_after(answer, &faults)
    }

    fn perform(&mut self, route: Route, id: u64, request: &Request, faults: &[Fault]) -> Answer {
        let body = request.json();
        match route {
            Route::Search => self.search(request, &body, faults),
            Route::Rent => self.rent(id, &body, faults),
            Route::RentMany => self.rent_many(&body),
            Route::List => self.list(request, faults),
            Route::ListOld => self.list_old(faults),
            Route::Filters => self.filter_values(),
            Route::Show => self.show(id),
            Route::Destroy => self.end_one(id),
            Route::DestroyMany => self.end_many(&body),
            Route::Set => self.set(id, &body, faults),
            Route::SetMany => self.set_many(&body, faults),
            Route::Bid => self.change_bid(id, &body),
            Route::Reboot | Route::Recycle => self.reboot(id, route == Route::Recycle),
            Route::Logs => self.request_log(id, &body),
            Route::User => self.user(),
            Route::Charges => self.charges(request),
            Route::GpuNames => Self::gpu_names(),
            Route::Audit => self.audit(),
            Route::PriceIncreases => self.increases(),
            Route::AcceptIncrease => self.answer_increase(&body, true),
            Route::RejectIncrease => self.answer_increase(&body, false),
        }
    }

    fn authorise(&self, route: Route, id: u64, request: &Request) -> Result<(), Answer> {
        let Some(scope) = route.scope() else { return Ok(()) };
        let Some(bearer) = request.bearer() else {
            return Err(Answer::error(403, code::AUTH_ERROR, "No Authorization header"));
        };
        if let Some(key) = self.settings.keys.iter().find(|key| key.key == bearer) {
            let needs = format!("This key lacks the permission {} for {}", scope.word(), request.path);
            return if key.scopes.contains(&scope) {
                Ok(())
            } else {
                Err(Answer::error(401, code::AUTH_ERROR, &needs))
            };
        }
        let Some(own) = self.instances.values().find(|one| one.key == bearer) else {
            return Err(Answer::error(401, code::AUTH_ERROR, "Invalid user key"));
        };
        // An instance's key starts, stops and destroys that one.
        let is_own = own.id == id
            && match route {
                Route::Destroy => true,
                Route::Set => request.json().as_object().is_some_and(|body| body.keys().all(|key| key == "state")),
                _ => false,
            };
        let needs = format!("This key lacks the permission for {}", request.path);
        if is_own { Ok(()) } else { Err(Answer::error(401, code::AUTH_ERROR, &needs)) }
    }

    fn fail_before(&mut self, faults: &[Fault]) -> Option<Answer> {
        faults.iter().find_map(|fault| {
            Some(match fault {
                Fault::DropBefore { hold } => Answer { delivery: lost(*hold), ..Answer::default() },
                Fault::StatusBefore { status } => bad_gateway(*status),
                Fault::TooMany { retry_after_s } => {
                    let answer = limits::too_many(4.5, &mut self.chaos);
                    match retry_after_s {
                        Some(wait_s) => answer.with("Retry-After", &wait_s.to_string()),
                        None => answer,
                    }
                }
                Fault::SearchQuota => limits::quota(self.now_ms),
                Fault::Unsuccessful { message } => Answer::error(200, "error", message),
                Fault::NotFoundForAuth => {
                    let texts = ["Invalid user key", "Session expired. Please log in again."];
                    Answer::json(404, &json!({"success": false, "msg": self.chaos.pick(&texts)}))
                }
                Fault::Unauthorized => Answer::error(401, code::AUTH_ERROR, "Invalid user key"),
                _ => return None,
            })
        })
    }
}

fn lost(hold: bool) -> Delivery {
    if hold { Delivery::Held } else { Delivery::Closed }
}

fn bad_gateway(status: u16) -> Answer {
    Answer::typed(status, "text/html", format!("<html><body>{status} Server Error</body></html>").into_bytes())
}

fn fail_after(answer: Answer, faults: &[Fault]) -> Answer {
    faults.iter().fold(answer, |answer, fault| match fault {
        Fault::DropAfter { hold } => Answer { delivery: lost(*hold), ..answer },
        Fault::StatusAfter { status } => bad_gateway(*status),
        Fault::Malformed => {
            let half = answer.body.len() / 2;
            Answer { body: answer.body[..half].to_vec(), ..answer }
        }
        Fault::Html => Answer::typed(200, "text/html", b"<!doctype html><title>Vast.ai</title>".to_vec()),
        Fault::WrongType => Answer::json(200, &Value::from("ok")),
        _ => answer,
    })
}
