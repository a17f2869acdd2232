//! The facts about a cluster that its promises depend on, each judged. Nothing is changed but for a lease that is made and ended at
//! once: it tells the election timeout, which etcd tells nobody otherwise.

use std::sync::Arc;

use leasehold_core::{Error, Namespace};

use super::{
    failure::Fail,
    keys::Keys,
    label::Version,
    options::Options,
    proto::{
        AlarmResponse, Empty, LeaseGrantRequest, LeaseGrantResponse, LeaseRequest, MemberListResponse,
        RangeRequest, RangeResponse, StatusResponse,
    },
    rpc::{Effect, Rpc},
};
use crate::doctor::{Finding, Verdict};

/// etcd's bound for the database when none is set.
const USUAL_QUOTA: i64 = 2 << 30;
/// etcd's shortest lease with the usual election timeout of 1 s.
const USUAL_LEAST_S: i64 = 2;

/// Looks at a deployment.
///
/// # Errors
/// As [`super::connect`], when no member can be asked.
pub async fn examine(options: Options, namespace: &Namespace) -> Result<Vec<Finding>, Error> {
    let rpc = Arc::new(Rpc::new(&options)?);
    let keys = Keys::new(&options.prefix, namespace);
    let asked: Result<RangeResponse, Fail> =
        rpc.call("/etcdserverpb.KV/Range", RangeRequest::one(keys.meta()), Effect::None).await;
    let space = asked.map_err(|fail| fail.of_read().at(&options.place))?;
    let mut found = vec![if space.kvs.is_empty() {
        Finding::new(
            Verdict::Note,
            "namespace",
            "windows",
            format!(
                "the namespace {namespace} is not there; its first claim starts a quarantine of the longest TTL"
            ),
            "make it with `leasehold init`, or `leasehold init --fresh` if nobody can hold a lease of it",
        )
    } else {
        Finding::fine("namespace", "windows", format!("the namespace {namespace} is there"))
    }];
    let statuses = members(&rpc, &mut found).await;
    versions(&statuses, &mut found);
    leader(&statuses, &mut found);
    sizes(&statuses, &mut found);
    alarms(&rpc, &mut found).await;
    election(&rpc, &mut found).await;
    users(&rpc, &options, &mut found).await;
    found.push(if options.tls.is_some() {
        Finding::fine(
            "tls",
            "windows",
            "connections are encrypted, and the members' certificates are checked",
        )
    } else {
        Finding::new(
            Verdict::Note,
            "tls",
            "windows",
            "connections are not encrypted: whoever can reach the network can read logins and change leases",
            "use etcds:// where the network is not trusted",
        )
    });
    Ok(found)
}

/// What each member of the URL says, by its name there.
type Statuses = Vec<(String, Result<StatusResponse, Fail>)>;

async fn members(rpc: &Rpc, found: &mut Vec<Finding>) -> Statuses {
    let list: Result<MemberListResponse, Fail> =
        rpc.call("/etcdserverpb.Cluster/MemberList", Empty {}, Effect::None).await;
    match list {
        Ok(list) => found.push(member_count(&list, rpc.members().len())),
        Err(fail) => found.push(not_told("members", "durability", fail)),
    }
    let mut statuses = Vec::new();
    for (at, member) in rpc.members().iter().enumerate() {
        let status = rpc.call_member(at, "/etcdserverpb.Maintenance/Status", Empty {}).await;
        if let Err(fail) = &status {
            let why = fail.clone().of_read();
            found.push(Finding::new(
                Verdict::Warning,
                "members",
                "durability",
                format!("the member at {} does not answer: {}", member.name(), why.what()),
                "start it, or leave it out of the URL: a cluster bears the loss of fewer than half of its members",
            ));
        }
        statuses.push((member.name().to_owned(), status));
    }
    statuses
}

fn member_count(list: &MemberListResponse, named: usize) -> Finding {
    let voters = list.members.iter().filter(|member| !member.is_learner).count();
    let fact = format!("{voters} voting members, {named} of them in the URL");
    match voters {
        0..3 => Finding::new(
            Verdict::Warning,
            "members",
            "durability",
            format!(
                "{fact}: while one is down nothing is granted or renewed, and one lost disk loses everything"
            ),
            "run three or five members on machines that fail apart",
        ),
        _ if voters % 2 == 0 => Finding::new(
            Verdict::Note,
            "members",
            "durability",
            format!("{fact}: an even number bears no more losses than one fewer"),
            "run an odd number of members",
        ),
        _ if named < voters => Finding::new(
            Verdict::Note,
            "members",
            "waiting",
            fact,
            "name every member in the URL, so that the loss of one is not the loss of all",
        ),
        _ => Finding::fine("members", "durability", fact),
    }
}

fn versions(statuses: &Statuses, found: &mut Vec<Finding>) {
    for (name, status) in statuses {
        let Ok(status) = status else { continue };
        let fact = |says: &str| format!("{name} runs etcd {}{says}", status.version);
        let Some(version) = Version::parse(&status.version) else { continue };
        if version < Version(3, 4, 0) {
            let says = ", which is older than this program knows";
            found.push(Finding::new(
                Verdict::Fault,
                "version",
                "windows",
                fact(says),
                "upgrade to a supported release",
            ));
            continue;
        }
        let before = found.len();
        if version.ends_live_leases() {
            let says = ": after a leader's disk hung for longer than an election it may end leases that live (etcd #12528, #15247)";
            let cure = "upgrade to 3.4.31, 3.5.13 or later, and give the members fast disks";
            found.push(Finding::new(Verdict::Warning, "version", "windows", fact(says), cure));
        }
        if version.keeps_dead_leases() {
            let says = ": a deposed leader may confirm a renewal of a dead lease; renewals are verified here, so nobody believes it";
            let cure = "upgrade to 3.4.38, 3.5.23, 3.6.5 or later";
            found.push(Finding::new(Verdict::Note, "version", "windows", fact(says), cure));
        }
        if !version.has_fix(27, 10, 0) {
            let says = ": a restored snapshot cannot be announced to etcd itself (no --bump-revision)";
            let cure = "after a restore remove the namespace's meta key before any client comes back; 3.4.27, 3.5.10 or later can do \
                        more";
            found.push(Finding::new(Verdict::Note, "version", "tokens", fact(says), cure));
        }
        if found.len() == before {
            found.push(Finding::fine("version", "windows", fact("")));
        }
    }
}

fn leader(statuses: &Statuses, found: &mut Vec<Finding>) {
    let leaders: Vec<u64> =
        statuses.iter().filter_map(|(_, status)| Some(status.as_ref().ok()?.leader)).collect();
    let agreed =
        leaders.first().is_some_and(|first| *first != 0 && leaders.iter().all(|leader| leader == first));
    found.push(if agreed {
        Finding::fine("leader", "waiting", "the members that answer agree on a leader")
    } else {
        Finding::new(
            Verdict::Fault,
            "leader",
            "waiting",
            "the members do not agree on a leader: nothing is granted or renewed",
            "see that a majority of the members runs and can reach each other",
        )
    });
}

fn sizes(statuses: &Statuses, found: &mut Vec<Finding>) {
    let largest = statuses.iter().filter_map(|(_, status)| Some(status.as_ref().ok()?.db_size)).max();
    let Some(size) = largest else { return };
    let fact = format!("the database is {} MiB large", size >> 20);
    found.push(if size > USUAL_QUOTA / 4 * 3 {
        Finding::new(
            Verdict::Warning,
            "space",
            "waiting",
            format!("{fact}; at its bound (2 GiB unless --quota-backend-bytes says otherwise) nothing can be granted"),
            "switch --auto-compaction-retention on, compact and defragment",
        )
    } else {
        Finding::fine("space", "waiting", fact)
    });
}

async fn alarms(rpc: &Rpc, found: &mut Vec<Finding>) {
    let answer: Result<AlarmResponse, Fail> =
        rpc.call("/etcdserverpb.Maintenance/Alarm", Empty {}, Effect::None).await;
    let alarms = match answer {
        Ok(answer) => answer.alarms,
        Err(fail) => return found.push(not_told("alarms", "durability", fail)),
    };
    for alarm in &alarms {
        found.push(if alarm.alarm == 1 {
            Finding::new(
                Verdict::Fault,
                "alarms",
                "waiting",
                format!(
                    "member {:x} has the alarm NOSPACE: nothing can be granted, and no success recorded",
                    alarm.member_id
                ),
                "compact and defragment, then `etcdctl alarm disarm`",
            )
        } else {
            Finding::new(
                Verdict::Fault,
                "alarms",
                "windows",
                format!(
                    "member {:x} has the alarm CORRUPT: its data differs from that of the others",
                    alarm.member_id
                ),
                "remove that member and its data, and add it anew",
            )
        });
    }
    if alarms.is_empty() {
        found.push(Finding::fine("alarms", "durability", "there are no alarms"));
    }
}

/// etcd's shortest lease is one and a half election timeouts, rounded up: so a lease of a second tells.
async fn election(rpc: &Rpc, found: &mut Vec<Finding>) {
    let question = LeaseGrantRequest { ttl: 1, id: 0 };
    let granted: Result<LeaseGrantResponse, Fail> =
        rpc.call("/etcdserverpb.Lease/LeaseGrant", question, Effect::None).await;
    let Ok(granted) = granted else { return };
    // It would end by itself.
    let _: Result<Empty, Fail> =
        rpc.call("/etcdserverpb.Lease/LeaseRevoke", LeaseRequest { id: granted.id }, Effect::None).await;
    let fact = format!("the shortest lease is {} s", granted.ttl);
    found.push(if granted.ttl <= USUAL_LEAST_S {
        Finding::fine("election", "waiting", fact)
    } else {
        Finding::new(
            Verdict::Note,
            "election",
            "waiting",
            format!("{fact}: shorter TTLs are lengthened to it, and an election may take two thirds of it"),
            "lower --election-timeout if the members are close to each other, or use longer TTLs",
        )
    });
}

async fn users(rpc: &Rpc, options: &Options, found: &mut Vec<Finding>) {
    // Who has no login is let in only where there are no users.
    let open = options.login.is_none() || rpc.has_no_users().await;
    found.push(if open {
        Finding::new(
            Verdict::Note,
            "users",
            "windows",
            "etcd asks nobody who they are: whoever reaches it can end and forge leases",
            "create a user with a role for the prefix, and `etcdctl auth enable`",
        )
    } else {
        Finding::fine("users", "windows", "etcd asks for a login")
    });
}

fn not_told(subject: &'static str, touches: &'static str, fail: Fail) -> Finding {
    let why = fail.of_read();
    Finding::new(
        Verdict::Note,
        subject,
        touches,
        format!("etcd does not tell this client: {}", why.what()),
        "ask as a user who may know, or look with etcdctl",
    )
}
