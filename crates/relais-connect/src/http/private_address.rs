//! The SSRF guard: by default a publisher connects only to public addresses.
//!
//! Invariant: a name is resolved once per connection, *all* its addresses are checked, and the
//! connection uses exactly the checked ones. One private address rejects the name: a mixed answer
//! is an attack, or needs `allow_private = true` anyway.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use relais_core::BoxFuture;
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// The code of a message whose target address is refused.
pub(super) const ADDRESS_REFUSED: &str = "ADDRESS_REFUSED";

/// The error for an address that is not public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrivateAddressError {
    host: String,
    address: IpAddr,
    kind: &'static str,
}

impl std::error::Error for PrivateAddressError {}

impl fmt::Display for PrivateAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address, kind } = self;
        write!(
            f,
            "`{host}` is at {address}, which is {kind}; set `allow_private = true` for this \
             destination to allow it"
        )
    }
}

/// Parses and checks the URL of a target. Errors never repeat it: paths and queries may contain
/// secrets.
pub(super) fn check_url(text: &str, allow_private: bool) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("cannot parse the url: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the url must start with http:// or https://, not {}:", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the url must not contain a user or password; set the header `authorization` \
                    instead"
            .to_owned());
    }
    let host = url.host_str().unwrap_or_default();
    // The URL parser has already normalised forms such as 0x7f.1 or 2130706433.
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match literal {
        Ok(address) if !allow_private => check(host, address).map_err(|e| e.to_string())?,
        _ => {}
    }
    Ok(url)
}

/// Resolves names; tests replace the operating system's resolver.
pub(super) trait NameLookup: Send + Sync {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
pub(super) struct SystemLookup;

impl NameLookup for SystemLookup {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A resolver that returns only public addresses.
pub(super) struct PublicResolver(pub(super) Arc<dyn NameLookup>);

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let lookup = self.0.lookup(host.clone());
        Box::pin(async move {
            let addresses = lookup.await?;
            for address in &addresses {
                check(&host, *address)?;
            }
            let vetted = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(vetted) as Addrs)
        })
    }
}

fn check(host: &str, address: IpAddr) -> Result<(), PrivateAddressError> {
    let kind = match address {
        IpAddr::V4(v4) => kind_v4(v4),
        IpAddr::V6(v6) => kind_v6(v6),
    };
    kind.map_or(Ok(()), |kind| Err(PrivateAddressError { host: host.to_owned(), address, kind }))
}

/// The IPv4 ranges that are not public: first address, prefix length, description.
const NOT_PUBLIC_V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "internal to a cloud"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a relay of 6to4"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

fn kind_v4(address: Ipv4Addr) -> Option<&'static str> {
    let inside = |net: Ipv4Addr, length: u32| (address.to_bits() ^ net.to_bits()) >> (32 - length);
    NOT_PUBLIC_V4.iter().find(|(net, length, _)| inside(*net, *length) == 0).map(|found| found.2)
}

/// The named IPv6 ranges that are not public. Everything else outside 2000::/3 is refused too.
const NOT_PUBLIC_V6: &[(u128, u32, &str)] = &[
    (0, 128, "unspecified"),
    (1, 128, "loopback"),
    (0x0064_ff9b_0001 << 80, 48, "a local NAT64"),
    (0x0100 << 112, 64, "a discard prefix"),
    (0x2001 << 112, 23, "reserved for protocols"),
    (0x2001_0db8 << 96, 32, "for documentation"),
    (0x3fff << 112, 20, "for documentation"),
    (0xfc00 << 112, 7, "private"),
    (0xfe80 << 112, 10, "link-local"),
    (0xfec0 << 112, 10, "site-local"),
    (0xff00 << 112, 8, "multicast"),
];

/// IPv6 ranges that embed an IPv4 address: first address, prefix length, right shift of the IPv4
/// address.
const CARRIERS: &[(u128, u32, u32)] = &[
    (0xffff << 32, 96, 0),      // ::ffff:a.b.c.d, mapped
    (0xffff << 48, 96, 0),      // ::ffff:0:a.b.c.d, translated
    (0x0064_ff9b << 96, 96, 0), // 64:ff9b::a.b.c.d, NAT64
    (0x2002 << 112, 16, 80),    // 2002:aabb:ccdd::, 6to4
    (0, 96, 0),                 // ::a.b.c.d, compatible
];

fn kind_v6(address: Ipv6Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let inside = |net: u128, length: u32| (bits ^ net) >> (128 - length) == 0;
    if let Some(named) = NOT_PUBLIC_V6.iter().find(|(net, length, _)| inside(*net, *length)) {
        return Some(named.2);
    }
    if let Some((_, _, shift)) = CARRIERS.iter().find(|(net, length, _)| inside(*net, *length)) {
        return kind_v4(low_v4(bits >> shift));
    }
    if !inside(0x2000 << 112, 3) {
        return Some("not public");
    }
    // ISATAP: any prefix, then 0:5efe or 200:5efe, then the IPv4 address.
    let isatap = (bits >> 32) & 0xfdff_ffff == 0x0000_5efe;
    if isatap { kind_v4(low_v4(bits)) } else { None }
}

fn low_v4(bits: u128) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::try_from(bits & 0xffff_ffff).expect("masked to 32 bits"))
}

#[cfg(test)]
mod tests;
