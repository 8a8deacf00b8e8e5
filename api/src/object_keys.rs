//! Keys of packages and uploaded weights in the object store. An object is below its tenant, so that a hash does not
//! reveal what other tenants have.

/// Key of a package.
pub(crate) fn package_key(tenant: &str, sha256: &str) -> String {
    format!("packages/{tenant}/{sha256}.tar.gz")
}

/// Key of uploaded weights.
pub(crate) fn weights_key(tenant: &str, sha256: &str) -> String {
    format!("weights/{tenant}/{sha256}")
}
