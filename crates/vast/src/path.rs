//! Paths of the calls. Each except [`USER`] ends with a slash: without it, Vast.ai redirects and the body is lost.

use std::fmt::Display;

/// Search for offers.
pub const SEARCH: &str = "/api/v0/bundles/";
/// Offers; see [`ask`].
pub const ASKS: &str = "/api/v0/asks/";
/// Instances; see [`instance`].
pub const INSTANCES: &str = "/api/v0/instances/";
/// List of instances, in pages.
pub const LIST: &str = "/api/v1/instances/";
/// Charges of the account, in pages.
pub const CHARGES: &str = "/api/v0/charges/";
/// The account with its credit.
pub const USER: &str = "/api/v0/users/current";
/// Names of all kinds of GPU.
pub const GPU_NAMES: &str = "/api/v0/gpu_names/unique/";

/// Path of an offer.
#[must_use]
pub fn ask(id: impl Display) -> String {
    format!("{ASKS}{id}/")
}

/// Path of an instance.
#[must_use]
pub fn instance(id: impl Display) -> String {
    format!("{INSTANCES}{id}/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Route;

    #[test]
    fn each_path_leads_to_its_call() {
        let table = [
            ("POST", SEARCH.to_owned(), Route::Search, 0),
            ("PUT", ask(7), Route::Rent, 7),
            ("GET", LIST.to_owned(), Route::List, 0),
            ("GET", instance(7), Route::Show, 7),
            ("PUT", instance(7), Route::Set, 7),
            ("DELETE", instance(7), Route::Destroy, 7),
            ("GET", CHARGES.to_owned(), Route::Charges, 0),
            ("GET", USER.to_owned(), Route::User, 0),
            ("GET", GPU_NAMES.to_owned(), Route::GpuNames, 0),
        ];
        for (method, path, route, id) in table {
            assert_eq!(Route::of(method, &path), Some((route, id)), "{method} {path}");
        }
    }
}
