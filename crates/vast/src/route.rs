//! The calls of the API, their paths, and the permission that each needs.

use serde::{Deserialize, Serialize};

use crate::Scope;

/// A call of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// `POST /bundles/`, `GET /bundles/?q=`, `PUT /search/asks/`.
    Search,
    /// `PUT /asks/{id}/`.
    Rent,
    /// `POST /asks/bulk/`.
    RentMany,
    /// `GET /api/v1/instances/`.
    List,
    /// `GET /instances/`.
    ListOld,
    /// `GET /instances/filters/`.
    Filters,
    /// `GET /instances/{id}/`.
    Show,
    /// `DELETE /instances/{id}/`.
    Destroy,
    /// `DELETE /instances/`.
    DestroyMany,
    /// `PUT /instances/{id}/`: start, stop, label.
    Set,
    /// `PUT /instances/`.
    SetMany,
    /// `PUT /instances/bid_price/{id}/`.
    Bid,
    /// `PUT /instances/reboot/{id}/`.
    Reboot,
    /// `PUT /instances/recycle/{id}/`.
    Recycle,
    /// `PUT /instances/request_logs/{id}/`.
    Logs,
    /// `GET /users/current/`.
    User,
    /// `GET /charges/`.
    Charges,
    /// `GET /gpu_names/unique/`.
    GpuNames,
    /// `GET /audit_logs/`.
    Audit,
    /// `GET /instances/pending-price-increases/`.
    PriceIncreases,
    /// `PUT .../accept-price-increase/`.
    AcceptIncrease,
    /// `PUT .../reject-price-increase/`.
    RejectIncrease,
}

impl Route {
    /// The call of a method and a path, and the ID in the path; 0 if there is none. A missing slash at the end is ignored.
    #[must_use]
    pub fn of(method: &str, path: &str) -> Option<(Self, u64)> {
        let (version, rest) = path.strip_prefix("/api/v").and_then(|rest| rest.split_once('/'))?;
        let parts: Vec<&str> = rest.trim_end_matches('/').split('/').collect();
        let plain = |route: Self| Some((route, 0));
        let of = |route: Self, id: &str| Some((route, id.parse().ok()?));
        match (version, method, parts.as_slice()) {
            ("0", "POST" | "GET", ["bundles"]) | ("0", "PUT", ["search", "asks"]) => plain(Self::Search),
            ("0", "POST", ["asks", "bulk"]) => plain(Self::RentMany),
            ("0", "PUT", ["asks", id]) => of(Self::Rent, id),
            ("1", "GET", ["instances"]) => plain(Self::List),
            ("0", "GET", ["instances"]) => plain(Self::ListOld),
            ("0", "GET", ["instances", "filters"]) => plain(Self::Filters),
            ("0", "GET", ["instances", "pending-price-increases"]) => plain(Self::PriceIncreases),
            ("0", "PUT", ["instances", "accept-price-increase"]) => plain(Self::AcceptIncrease),
            ("0", "PUT", ["instances", "reject-price-increase"]) => plain(Self::RejectIncrease),
            ("0", "PUT", ["instances", id, "accept-price-increase"]) => of(Self::AcceptIncrease, id),
            ("0", "PUT", ["instances", id, "reject-price-increase"]) => of(Self::RejectIncrease, id),
            ("0", "GET", ["instances", id]) => of(Self::Show, id),
            ("0", "DELETE", ["instances"]) => plain(Self::DestroyMany),
            ("0", "DELETE", ["instances", id]) => of(Self::Destroy, id),
            ("0", "PUT", ["instances"]) => plain(Self::SetMany),
            ("0", "PUT", ["instances", "bid_price", id]) => of(Self::Bid, id),
            ("0", "PUT", ["instances", "reboot", id]) => of(Self::Reboot, id),
            ("0", "PUT", ["instances", "recycle", id]) => of(Self::Recycle, id),
            ("0", "PUT", ["instances", "request_logs", id]) => of(Self::Logs, id),
            ("0", "PUT", ["instances", id]) => of(Self::Set, id),
            ("0", "GET", ["users", "current"]) => plain(Self::User),
            ("0", "GET", ["charges"]) => plain(Self::Charges),
            ("0", "GET", ["gpu_names", "unique"]) => plain(Self::GpuNames),
            ("0", "GET", ["audit_logs"]) => plain(Self::Audit),
            _ => None,
        }
    }

    /// Permission that the key needs; `None` if the call needs no key.
    #[must_use]
    pub fn scope(self) -> Option<Scope> {
        match self {
            Self::Search | Self::GpuNames => None,
            Self::Rent
            | Self::RentMany
            | Self::Destroy
            | Self::DestroyMany
            | Self::Set
            | Self::SetMany
            | Self::Bid
            | Self::Reboot
            | Self::Recycle
            | Self::AcceptIncrease
            | Self::RejectIncrease => Some(Scope::InstanceWrite),
            Self::List | Self::ListOld | Self::Filters | Self::Show | Self::Logs | Self::PriceIncreases => {
                Some(Scope::InstanceRead)
            }
            Self::User => Some(Scope::UserRead),
            Self::Charges | Self::Audit => Some(Scope::BillingRead),
        }
    }
}
