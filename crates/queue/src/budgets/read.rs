//! Reads budgets and running attempts as stored by the scripts.

use std::collections::HashMap;

use redis::AsyncCommands;

use super::{Budget, Budgeted, RUNNING_MAX, Running, Stood};
use crate::connection::Connection;
use crate::error::Error;
use crate::id::Fence;
use crate::keys::Keys;
use crate::limit_scope::LimitScope;

/// Number of records per round trip.
const RECORDS_AT_ONCE: usize = 500;

/// Reads the limit scopes that have a budget, by name.
pub(crate) async fn read_budgets(connection: &Connection, keys: &Keys, day: u32) -> Result<Vec<Budgeted>, Error> {
    let (mut redis, step) = (connection.redis(), "read the budgets");
    type Hashes = (HashMap<String, String>, HashMap<String, String>);
    let (budgets, stood): Hashes = redis::pipe()
        .hgetall(keys.budgets())
        .hgetall(keys.stood())
        .query_async(&mut redis)
        .await
        .map_err(Error::redis(step))?;
    if budgets.is_empty() {
        return Ok(Vec::new());
    }
    let (limit_scopes, paused): (Vec<&String>, Vec<String>) =
        budgets.keys().map(|scope| (scope, format!("p:{scope}"))).unzip();
    let (spent, paused): (Vec<Option<u64>>, Vec<Option<u64>>) = redis::pipe()
        .cmd("HMGET")
        .arg(keys.spent_in_scopes(day))
        .arg(&limit_scopes)
        .cmd("HMGET")
        .arg(keys.limits())
        .arg(&paused)
        .query_async(&mut redis)
        .await
        .map_err(Error::redis(step))?;
    let mut all = Vec::with_capacity(limit_scopes.len());
    for ((name, spent), paused_until_ms) in limit_scopes.into_iter().zip(spent).zip(paused) {
        let read = LimitScope::parse(name).zip(Budget::parse(&budgets[name]));
        let Some((scope, budget)) = read else {
            tracing::error!(scope = %name, text = %budgets[name], "a budget cannot be read");
            continue;
        };
        let stood = stood.get(name).and_then(|text| Stood::parse(text));
        all.push(Budgeted { scope, budget, spent_usd_micros: spent.unwrap_or(0), stood, paused_until_ms });
    }
    all.sort_by_key(|budgeted| budgeted.scope.to_string());
    Ok(all)
}

/// Reads the running attempts. Those that end during the read are left out.
pub(crate) async fn read_running(connection: &Connection, keys: &Keys) -> Result<Vec<Running>, Error> {
    let (mut redis, step) = (connection.redis(), "read the running jobs");
    let ids: Vec<String> =
        redis.zrange(keys.leases(), 0, RUNNING_MAX.cast_signed() - 1).await.map_err(Error::redis(step))?;
    let mut all = Vec::with_capacity(ids.len());
    for ids in ids.chunks(RECORDS_AT_ONCE) {
        let ids: Vec<_> = ids.iter().filter_map(|text| text.parse().ok()).collect();
        let mut pipe = redis::pipe();
        for id in &ids {
            pipe.hmget(keys.job(*id), &["run", "lane", "fence", "batch"]);
        }
        let rows: Vec<Option<[Option<String>; 4]>> =
            connection.read_each(&mut pipe).await.map_err(Error::redis(step))?;
        for (id, row) in ids.into_iter().zip(rows) {
            let Some([Some(run), Some(lane), Some(fence), batch]) = row else { continue };
            let (mut run, mut lane) = (run.split(' '), lane.splitn(4, ':').skip(2));
            let (Some(worker), Some(leased_ms)) = (run.next(), run.next().and_then(|ms| ms.parse().ok())) else {
                continue;
            };
            let (Some(tenant), Some(endpoint)) = (lane.next(), lane.next()) else { continue };
            all.push(Running {
                id,
                fence: Fence(fence),
                tenant: tenant.to_owned(),
                endpoint: endpoint.to_owned(),
                batch,
                worker_id: worker.to_owned(),
                leased_ms,
            });
        }
    }
    Ok(all)
}
