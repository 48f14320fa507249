//! The name by which other machines find this one.

/// The host by which others find who listens at `address` on the machine `host`: the address, unless it is every
/// address.
pub fn host_of(address: &str, host: &str) -> String {
    let ip = address.rsplit_once(':').map(|(ip, _)| ip.trim_matches(['[', ']'])).unwrap_or_default();
    if ["0.0.0.0", "::"].contains(&ip) { host.to_owned() } else { ip.to_owned() }
}
