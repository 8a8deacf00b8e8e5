//! Token management over the API.

use anyhow::Result;
use reqwest::Method;
use serde_json::Value;
use stokehold_api::token::Role;
use stokehold_client::models::{RotateRequest, TokenRequest};
use stokehold_queue::requirements::Trust;

use super::{CreateArgs, RotateArgs, TokenKind};
use crate::client::{Client, query, segment};
use crate::failure::Failure;
use crate::output;

const TOKENS: &str = "/v1/tokens";

pub(super) struct Api(pub(super) Client);

impl Api {
    pub(super) async fn create(&self, args: CreateArgs) -> Result<Value> {
        let joins = args.kind() == TokenKind::Join;
        let roles = if joins { vec![Role::Worker] } else { args.roles };
        if roles.is_empty() && args.scopes.is_empty() {
            let text = format!("the token has no rights, which the API at {} does not create", self.0.url());
            let hint = "Pass e.g. --role submit or --scope jobs:read. For every scope, unset STOKE_URL and STOKE_TOKEN on \
                the API's host, or pass --redis: the token is then created in the API's Redis.";
            return Err(Failure::usage(text).hint(hint).into());
        }
        let request = TokenRequest {
            name: args.name,
            user: args.user,
            roles: Some(roles.into_iter().map(|role| role.as_str().to_owned().into()).collect()),
            scopes: Some(args.scopes.into_iter().map(|scope| scope.as_str().to_owned()).collect()),
            ttl_s: args.ttl.map(|ttl| ttl.as_secs()),
            tenant: args.tenant,
            trust: args.trust.map(|trust| Trust::from(trust).as_str().to_owned().into()),
            region: args.region,
            single_use: Some(args.single_use),
        };
        Ok(made(&self.0.once(Method::POST, TOKENS, Some(&serde_json::to_value(request)?)).await?))
    }

    pub(super) async fn rotate(&self, args: &RotateArgs) -> Result<Value> {
        let request =
            RotateRequest { overlap_s: Some(args.overlap.as_secs()), ttl_s: args.ttl.map(|ttl| ttl.as_secs()) };
        let path = format!("{TOKENS}/{}/rotate", segment(&args.id));
        Ok(made(&self.0.once(Method::POST, &path, Some(&serde_json::to_value(request)?)).await?))
    }

    pub(super) async fn list(&self, tenant: Option<&str>) -> Result<Vec<Value>> {
        let found = self.0.get(&query(TOKENS, &[("tenant", tenant)])).await?;
        Ok(found["tokens"].as_array().into_iter().flatten().map(shown).collect())
    }

    pub(super) async fn revoke(&self, id: &str, with_workers: bool) -> Result<()> {
        let path = query(&format!("{TOKENS}/{}", segment(id)), &[("with_workers", with_workers.then_some("true"))]);
        self.0.once(Method::DELETE, &path, None).await.map(|_| ())
    }
}

fn made(new: &Value) -> Value {
    let mut made = shown(&new["record"]);
    made["token"] = new["token"].clone();
    made
}

/// The API's token object, with times as numbers.
fn shown(token: &Value) -> Value {
    let mut shown = token.clone();
    let Some(members) = shown.as_object_mut() else { return shown };
    for (time, number) in [
        ("created_at", "created_ms"),
        ("expires_at", "expires_ms"),
        ("last_used_at", "last_used_ms"),
        ("previous_until", "previous_until_ms"),
    ] {
        let at = members.remove(time).unwrap_or_default();
        members.insert(number.to_owned(), output::millis_of(at.as_str()).into());
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tokens_times_are_told_as_where_redis_is_asked() {
        let new = json!({"token": "sk_x", "record": {"id": "1", "created_at": "1970-01-01T00:00:01.000Z", "expires_at": null}});
        let made = made(&new);
        assert_eq!(
            (&made["token"], &made["created_ms"], &made["expires_ms"]),
            (&json!("sk_x"), &json!(1_000), &Value::Null)
        );
        assert!(made.get("created_at").is_none());
    }
}
