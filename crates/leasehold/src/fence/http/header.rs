//! The headers: how a pass is written into a request and read out of it.

use http::{HeaderMap, HeaderName, HeaderValue};
use leasehold_core::{
    Invalid, Label, LeaseId, Namespace, Resource, Token,
    fence::{OpSeq, Pass},
    ticket::Ticket,
};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// `Fencing-Token`: token, lease id and resource.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");
/// `Fencing-Ticket`: the same, signed.
pub const FENCING_TICKET: HeaderName = HeaderName::from_static("fencing-ticket");

/// Puts a pass into the headers of a request, in the place of one that is there.
///
/// # Errors
/// [`Invalid`]: never for a pass of this library.
pub fn put(pass: &Pass, headers: &mut HeaderMap) -> Result<(), Invalid> {
    let Pass { namespace, resource, token, lease_id, op_seq, holder, ticket } = pass;
    let mut text = format!("{token}; lease={lease_id}; resource={}", resource.encode());
    if *namespace != Namespace::default() {
        text.push_str("; namespace=");
        text.push_str(namespace.as_str());
    }
    if let Some(op_seq) = op_seq {
        text.push_str("; seq=");
        text.push_str(&op_seq.to_string());
    }
    if !holder.is_empty() {
        text.push_str("; holder=");
        text.extend(utf8_percent_encode(holder.as_str(), NON_ALPHANUMERIC));
    }
    headers.insert(FENCING_TOKEN, value(&text)?);
    match ticket {
        Some(ticket) => drop(headers.insert(FENCING_TICKET, value(&ticket.to_string())?)),
        None => drop(headers.remove(FENCING_TICKET)),
    }
    Ok(())
}

fn value(text: &str) -> Result<HeaderValue, Invalid> {
    HeaderValue::from_str(text).map_err(|_| Invalid::new("fencing token", "does not fit into a header"))
}

/// Reads the pass of a request; `None` when it shows none.
///
/// # Errors
/// [`Invalid`] for a header that is not one of ours, or is there twice.
pub fn read(headers: &HeaderMap) -> Result<Option<Pass>, Invalid> {
    let ticket = one(headers, &FENCING_TICKET)?.map(str::parse::<Ticket>).transpose()?;
    let pass = one(headers, &FENCING_TOKEN)?.map(parse).transpose()?;
    Ok(match (pass, ticket) {
        (Some(pass), Some(ticket)) => Some(pass.with_ticket(ticket)),
        (pass, ticket) => pass.or_else(|| ticket.map(Pass::from)),
    })
}

/// Two headers of one name are a proxy's mistake or an attack: which of them would be meant?
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Invalid> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Invalid::new("fencing token", "must be sent once"));
    }
    first.to_str().map(Some).map_err(|_| malformed())
}

fn malformed() -> Invalid {
    Invalid::new("Fencing-Token", "must look like 1767323045678901; lease=ID; resource=NAME")
}

fn parse(text: &str) -> Result<Pass, Invalid> {
    let mut parts = text.split(';').map(str::trim);
    let token: Token = parts.next().unwrap_or_default().parse()?;
    let mut given = Given::default();
    for part in parts {
        let (name, value) = part.split_once('=').ok_or_else(malformed)?;
        given.take(name, value)?;
    }
    let (Some(resource), Some(lease_id)) = (given.resource, given.lease_id) else { return Err(malformed()) };
    let mut pass = Pass::new(given.namespace.unwrap_or_default(), resource, token, lease_id);
    pass.op_seq = given.op_seq;
    pass.holder = given.holder.unwrap_or_default();
    Ok(pass)
}

#[derive(Default)]
struct Given {
    resource: Option<Resource>,
    lease_id: Option<LeaseId>,
    namespace: Option<Namespace>,
    op_seq: Option<OpSeq>,
    holder: Option<Label>,
}

impl Given {
    /// Takes a parameter; one that is not known, or was there before, is no parameter.
    fn take(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        match name {
            "resource" => set(&mut self.resource, Resource::decode(value)?),
            "lease" => set(&mut self.lease_id, value.parse()?),
            "namespace" => set(&mut self.namespace, Namespace::new(value)?),
            "seq" => set(&mut self.op_seq, value.parse()?),
            "holder" => {
                let text = percent_decode_str(value).decode_utf8().map_err(|_| malformed())?;
                set(&mut self.holder, Label::new(&text)?)
            }
            _ => Err(malformed()),
        }
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), Invalid> {
    if place.replace(value).is_some() { Err(malformed()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(FENCING_TOKEN, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    #[test]
    fn what_is_no_header_of_ours_is_refused() {
        assert_eq!(read(&HeaderMap::new()).unwrap(), None);
        let good = format!("7; lease={ID}; resource=orders%2F42");
        let pass = read(&headers(&[&good])).unwrap().unwrap();
        assert_eq!((pass.token.get(), pass.resource.as_str()), (7, "orders/42"));
        for bad in [
            "",
            "7",
            "seven",
            "-7",
            "7 8",
            &format!("7; lease={ID}"),
            "7; resource=r",
            &format!("7; lease={ID}; resource=orders/42"),
            &format!("7; lease={ID}; resource=r; resource=r"),
            &format!("7; lease={ID}; resource=r; role=admin"),
            &format!("7; lease={ID}; resource=r; seq=0"),
            &format!("7; lease={ID}; resource=%00"),
            &format!("9007199254740992; lease={ID}; resource=r"),
            &format!("7, 8; lease={ID}; resource=r"),
        ] {
            read(&headers(&[bad])).expect_err(bad);
        }
        read(&headers(&[&good, &good])).expect_err("twice");
    }

    proptest! {
        #[test]
        fn a_pass_survives_its_header(
            name in "\\PC{1,60}",
            holder in "\\PC{0,60}",
            token in 1..=Token::MAX,
            bytes: [u8; 16],
            op_seq in proptest::option::of(1..=Token::MAX),
        ) {
            let mut pass = Pass::new(
                Namespace::new("app.1").unwrap(),
                Resource::new(&name).unwrap(),
                Token::new(token).unwrap(),
                LeaseId::from_bytes(bytes),
            )
            .held_by(Label::new(&holder).unwrap());
            pass.op_seq = op_seq.map(|op_seq| OpSeq::new(op_seq).unwrap());
            let mut headers = HeaderMap::new();
            put(&pass, &mut headers).unwrap();
            prop_assert_eq!(read(&headers).unwrap(), Some(pass));
        }

        #[test]
        fn no_header_makes_reading_panic(text in "[ -~]{0,120}") {
            let _ = read(&headers(&[&text]));
        }
    }
}
