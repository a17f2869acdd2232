//! How a coordinator is named to somebody else: to the command of `run`, and to a person who is shown what to type.

use std::path::Path;

use leasehold::Url;

/// The URL that a person can type after `--url`. `None` where none would do: it would lack its password.
pub(crate) fn for_people(user: &Url, place: &str) -> Option<String> {
    match user {
        Url::Network(address) if address.password.is_some() => None,
        _ => Some(for_command(user, place)),
    }
}

/// The URL for the command's environment: free of secrets, absolute so that it means the same from any folder, and with the
/// settings without which the namespace may not be used. `place` is what the coordinator calls itself.
///
/// A path that no URL can say (a folder above a relative path may contain a question mark) leaves the one that the user
/// gave, which is right in the folder in which the command starts.
pub(crate) fn for_command(user: &Url, place: &str) -> String {
    if let Url::Network(address) = user {
        return address.to_url();
    }
    let Url::Sqlite { path, max_ttl } = user else { return place.to_owned() };
    let settings = max_ttl.map(|ttl| format!("?max_ttl={}ms", ttl.as_millis())).unwrap_or_default();
    let absolute = format!("{place}{settings}");
    let means = place
        .strip_prefix("sqlite:")
        .map(|path| Url::Sqlite { path: Some(Path::new(path).to_owned()), max_ttl: *max_ttl });
    if means.is_some() && Url::parse(&absolute).ok() == means {
        return absolute;
    }
    let path = path.as_deref().map(Path::to_string_lossy).unwrap_or_default();
    format!("sqlite:{path}{settings}")
}

#[cfg(test)]
mod tests {
    use leasehold::address::Address;

    use super::*;

    #[test]
    fn the_place_keeps_its_settings_and_a_path_that_no_url_can_say_stays_the_users() {
        let given = |user, place| for_command(&Url::parse(user).unwrap(), place);
        assert_eq!(given("sqlite:l.db", "sqlite:/a/l.db"), "sqlite:/a/l.db");
        assert_eq!(given("sqlite:", "sqlite:/home/me/l.db"), "sqlite:/home/me/l.db");
        assert_eq!(given("sqlite:l.db?max_ttl=48h", "sqlite:/a/l.db"), "sqlite:/a/l.db?max_ttl=172800000ms");
        assert_eq!(given("sqlite:l.db", "sqlite:/a?b/l.db"), "sqlite:l.db");
        assert_eq!(given("sqlite:l.db?max_ttl=1d", "sqlite:/a?b/l.db"), "sqlite:l.db?max_ttl=86400000ms");
        assert_eq!(given("memory:x", "memory:x"), "memory:x");
    }

    #[test]
    fn a_password_is_in_neither_and_settings_are_in_both() {
        let url = |rest| Url::Network(Box::new(Address::parse("redis", rest).unwrap()));
        let open = url("//h:1/2?max_ttl=2m");
        assert_eq!(for_people(&open, "redis://h:1/2").unwrap(), "redis://h:1/2?max_ttl=2m");
        let secret = url("//u:hunter2@h:1?max_ttl=2m");
        assert_eq!(for_people(&secret, "redis://u@h:1"), None);
        assert_eq!(for_command(&secret, "redis://u@h:1"), "redis://u@h:1?max_ttl=2m");
    }
}
