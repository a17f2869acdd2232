//! `fence`: what a shell job asks at the resource. Each answer of a fence has an exit code and a word of its own.

mod file;
mod pass;

use leasehold::{
    blocking::block_on,
    fence::{Fence, Mark, NotAdmitted, Pass, Refusal, Refused, postgres},
};

use crate::{
    args::{self, FenceVerb},
    client,
    exit::Exit,
    failure::Failure,
    output,
    settings::{self, Settings},
    view::{self, AdmittedLine, InstallLine, LeaseFields, MarkFields, MarkLine},
};

pub(crate) fn run(args: &args::Fence, settings: &Settings) -> Result<Exit, Failure> {
    match &args.verb {
        FenceVerb::Seal(args) => seal(args, settings),
        FenceVerb::Check(args) => check(args, settings),
        FenceVerb::File(args) => file::run(args, settings),
        FenceVerb::Show(args) => show(args, settings),
        FenceVerb::Raise(args) => raise(args, settings),
        FenceVerb::Install(args) => install(args, settings),
    }
}

fn seal(args: &args::FencePass, settings: &Settings) -> Result<Exit, Failure> {
    let pass = pass::read(args.resource.as_deref(), &args.grant, settings)?;
    let fence = open(&args.place, settings)?;
    block_on(fence.seal(&pass)).map_err(|no| refusal(&no))?;
    let words = || format!("{} is sealed under token {} on {}", pass.resource, pass.token, fence.place());
    settings.output.confirm(&admitted(&pass, &fence), words)?;
    Ok(Exit::Done)
}

fn check(args: &args::FencePass, settings: &Settings) -> Result<Exit, Failure> {
    let pass = pass::read(args.resource.as_deref(), &args.grant, settings)?;
    let fence = open(&args.place, settings)?;
    block_on(fence.check(&pass)).map_err(|no| refusal(&no))?;
    let words = || format!("a write to {} under token {} counts", pass.resource, pass.token);
    settings.output.confirm(&admitted(&pass, &fence), words)?;
    Ok(Exit::Done)
}

fn show(args: &args::FenceShow, settings: &Settings) -> Result<Exit, Failure> {
    let resource = pass::resource(args.resource.as_deref())?;
    let fence = open(&args.place, settings)?;
    let mark = block_on(fence.look(&settings.namespace, &resource))?;
    let refused = block_on(fence.refused())?;
    let line = MarkLine {
        resource: view::name(&resource),
        namespace: settings.namespace.as_str().to_owned(),
        place: fence.place().to_owned(),
        mark: mark.as_ref().map(MarkFields::from).unwrap_or_default(),
        stale_write_rejected_total: refused,
    };
    settings.output.result(&line, || {
        let mut rows = vec![("resource", resource.to_string()), ("fence", fence.place().to_owned())];
        rows.extend(describe(mark.as_ref()));
        rows.push(("refused", format!("{refused} writes, to any resource of this fence")));
        rows.into_iter().map(|(name, value)| format!("{name:8}  {value}")).collect()
    })?;
    Ok(Exit::Done)
}

fn describe(mark: Option<&Mark>) -> Vec<(&'static str, String)> {
    let Some(mark) = mark else { return vec![("token", "none: it has never been sealed".to_owned())] };
    let grant = mark.lease_id.map_or_else(|| "none yet: raised by hand".to_owned(), |id| id.to_string());
    let mut rows = vec![("token", mark.token.to_string()), ("lease id", grant)];
    rows.extend(mark.op_seq.map(|op_seq| ("op_seq", op_seq.to_string())));
    if !mark.holder.is_empty() {
        rows.push(("by", mark.holder.to_string()));
    }
    rows
}

fn raise(args: &args::FenceRaise, settings: &Settings) -> Result<Exit, Failure> {
    let (resource, token) = (settings::resource(&args.resource)?, settings::token(&args.token)?);
    let fence = open(&args.place, settings)?;
    let by = settings.holder.clone().unwrap_or_else(client::operator);
    let mark = block_on(fence.raise(&settings.namespace, &resource, token, &by))?;
    let line = MarkLine {
        resource: view::name(&resource),
        namespace: settings.namespace.as_str().to_owned(),
        place: fence.place().to_owned(),
        mark: MarkFields::from(&mark),
        stale_write_rejected_total: block_on(fence.refused())?,
    };
    settings.output.confirm(&line, || {
        let already = if mark.token > token { ", as before" } else { "" };
        format!("writes to {resource} count from token {} on{already}", mark.token)
    })?;
    Ok(Exit::Done)
}

fn install(args: &args::FenceInstall, settings: &Settings) -> Result<Exit, Failure> {
    let url = pass::database(&args.place, settings)?;
    if args.print {
        let roles: Vec<&str> = args.grant.iter().map(String::as_str).collect();
        let script = postgres::script(&postgres::schema_of(&url)?, args.strict, &roles)?;
        output::raw(format!("BEGIN;\n{script}\nCOMMIT;\n").as_bytes())?;
        return Ok(Exit::Done);
    }
    let place = block_on(postgres::install(&url, args.strict, args.grant.clone()))?;
    let line = InstallLine { place: place.clone(), strict: args.strict };
    settings.output.confirm(&line, || {
        let strict = if args.strict { ", with strict mode" } else { "" };
        format!("the fence is installed on {place}{strict}")
    })?;
    Ok(Exit::Done)
}

/// Opens the fence that was named, or the one that belongs to the coordinator.
fn open(place: &args::FencePlace, settings: &Settings) -> Result<Fence, Failure> {
    let url = pass::store(place, settings)?;
    let fence = block_on(Fence::connect(&url))?;
    settings.output.detail(|| format!("asking the fence on {}", fence.place()));
    Ok(fence)
}

fn admitted(pass: &Pass, fence: &Fence) -> AdmittedLine {
    AdmittedLine {
        resource: view::name(&pass.resource),
        namespace: pass.namespace.as_str().to_owned(),
        place: fence.place().to_owned(),
        fencing_token: pass.token.get(),
        lease_id: pass.lease_id.to_string(),
        op_seq: pass.op_seq.map(leasehold::fence::OpSeq::get),
        admitted: true,
    }
}

/// The answer no.
fn refusal(no: &NotAdmitted) -> Failure {
    match no {
        NotAdmitted::Refused(refused) => told(refused),
        NotAdmitted::Failed(error) => error.clone().into(),
        other => Failure::error(Exit::Unknown, "unknown", other.to_string()),
    }
}

fn told(refused: &Refused) -> Failure {
    let exit = match refused.refusal {
        // One token, two grants: a coordinator has lost its memory.
        Refusal::Collision { .. } => Exit::Corrupt,
        Refusal::Ticket(_) => Exit::Denied,
        Refusal::MissingToken | Refusal::TokenTooHigh { .. } => Exit::Usage,
        _ => Exit::NotHeld,
    };
    let Refused { resource, pass, refusal, .. } = refused;
    let to = resource.as_ref().map(|resource| format!(" to {resource}")).unwrap_or_default();
    let under = pass.as_ref().map(|pass| format!(" under token {}", pass.token)).unwrap_or_default();
    let what = format!("the write{to}{under} does not count: {refusal}");
    let mut failure = Failure::answer(exit, refusal.word(), what).advise(refusal.advice());
    failure.resource = resource.as_ref().map(view::name);
    failure.reason = Some(refusal.word());
    failure.holder = refusal.stored().map(LeaseFields::from);
    failure
}
