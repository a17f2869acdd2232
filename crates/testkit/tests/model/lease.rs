//! Two clients, a store, one resource: windows, tokens, a fence, and a store that may forget once.

use stateright::{Model, Property};

use crate::{deep, violated};

/// In ticks.
const TTL: u8 = 2;
/// Tokens of a later tick are above all of an earlier one.
const TOKENS_A_TICK: u8 = 16;

#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a variant of its own")]
struct Lease {
    ticks: u8,
    grants: u8,
    writes: u8,
    from_reply: bool,
    seals: bool,
    /// The fence takes the same grant's token again.
    equal_admitted: bool,
    forgets: bool,
    keeps_tokens: bool,
    quarantines: bool,
    floors: bool,
}

const FULL: Lease = Lease {
    ticks: 5,
    grants: 3,
    writes: 1,
    from_reply: false,
    seals: true,
    equal_admitted: true,
    forgets: false,
    keeps_tokens: false,
    quarantines: false,
    floors: false,
};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Message {
    Acquire { client: u8, grant: u8, sent: u8 },
    Granted { client: u8, grant: u8, token: u8, sent: u8 },
    Busy { client: u8 },
    Write { client: u8, grant: u8, token: u8, based_on: u8 },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Client {
    #[default]
    Idle,
    Asking,
    Holding {
        grant: u8,
        token: u8,
        close: u8,
        /// The version it knows, once it has read.
        read: Option<u8>,
        writes: u8,
        /// A write is on its way; it waits for it.
        writing: bool,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is what a property looks at")]
struct State {
    now: u8,
    clients: [Client; 2],
    messages: Vec<Message>,
    /// The grant that stands, and until when.
    held: Option<(u8, u8)>,
    counter: u8,
    quarantined_until: u8,
    forgot: bool,
    grants: u8,
    /// The highest token of all grants, by the true order.
    highest: u8,
    fell: bool,
    /// What the resource knows.
    fence: (u8, u8),
    version: u8,
    written_by: u8,
    lost_update: bool,
    wrote_twice: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Tick,
    Acquire(u8),
    Deliver(u8),
    Read(u8),
    Write(u8),
    Release(u8),
    Forget,
}

impl Lease {
    fn admits(self, state: &State, grant: u8, token: u8) -> bool {
        state.fence.0 < token || (self.equal_admitted && state.fence == (token, grant))
    }

    fn acquire(self, state: &mut State, client: u8, grant: u8, sent: u8) {
        let busy =
            state.held.is_some_and(|(_, until)| state.now < until) || state.now < state.quarantined_until;
        if busy {
            return state.messages.push(Message::Busy { client });
        }
        let floor = if self.floors { state.now * TOKENS_A_TICK } else { 0 };
        let token = (state.counter + 1).max(floor);
        state.counter = token;
        state.held = Some((grant, state.now + TTL));
        state.fell |= token <= state.highest;
        state.highest = state.highest.max(token);
        state.messages.push(Message::Granted { client, grant, token, sent });
    }

    fn deliver(self, state: &mut State, message: Message) {
        match message {
            Message::Acquire { client, grant, sent } => self.acquire(state, client, grant, sent),
            Message::Busy { client } => state.clients[usize::from(client)] = Client::Idle,
            Message::Granted { client, grant, token, sent } => {
                let from = if self.from_reply { state.now } else { sent };
                let close = from + TTL;
                state.clients[usize::from(client)] = if close > state.now {
                    Client::Holding { grant, token, close, read: None, writes: 0, writing: false }
                } else {
                    Client::Idle
                };
            }
            Message::Write { client, grant, token, based_on } => {
                self.write(state, client, grant, token, based_on);
            }
        }
    }

    fn write(self, state: &mut State, client: u8, grant: u8, token: u8, based_on: u8) {
        let admitted = self.admits(state, grant, token);
        if admitted {
            state.lost_update |= based_on != state.version && state.written_by != grant;
            state.wrote_twice |= state.written_by == grant;
            state.fence = (token, grant);
            state.version += 1;
            state.written_by = grant;
        }
        let version = state.version;
        if let Client::Holding { grant: mine, read, writing, .. } = &mut state.clients[usize::from(client)]
            && *mine == grant
        {
            *writing = false;
            *read = read.filter(|_| !admitted).or(admitted.then_some(version));
        }
    }
}

fn holds(state: &State, client: usize) -> bool {
    matches!(state.clients[client], Client::Holding { close, .. } if state.now < close)
}

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.ticks {
            actions.push(Action::Tick);
        }
        actions.extend((0..state.messages.len()).map(|at| Action::Deliver(u8::try_from(at).unwrap())));
        for client in 0..2u8 {
            match state.clients[usize::from(client)] {
                Client::Idle if state.grants < self.grants => actions.push(Action::Acquire(client)),
                Client::Holding { read, writes, writing, .. } => {
                    actions.push(Action::Release(client));
                    if holds(state, usize::from(client)) {
                        if read.is_none() {
                            actions.push(Action::Read(client));
                        } else if writes < self.writes && !writing {
                            actions.push(Action::Write(client));
                        }
                    }
                }
                _ => {}
            }
        }
        if self.forgets && !state.forgot {
            actions.push(Action::Forget);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Deliver(at) => {
                let message = state.messages.remove(usize::from(at));
                self.deliver(&mut state, message);
            }
            Action::Acquire(client) => {
                state.grants += 1;
                let (grant, sent) = (state.grants, state.now);
                state.clients[usize::from(client)] = Client::Asking;
                state.messages.push(Message::Acquire { client, grant, sent });
            }
            Action::Read(client) => {
                let Client::Holding { grant, token, .. } = state.clients[usize::from(client)] else {
                    return None;
                };
                if self.seals {
                    if !self.admits(&state, grant, token) {
                        return None;
                    }
                    state.fence = (token, grant);
                }
                let version = state.version;
                if let Client::Holding { read, .. } = &mut state.clients[usize::from(client)] {
                    *read = Some(version);
                }
            }
            Action::Write(client) => {
                let Client::Holding { grant, token, read, writes, writing, .. } =
                    &mut state.clients[usize::from(client)]
                else {
                    return None;
                };
                (*writes, *writing) = (*writes + 1, true);
                let message = Message::Write { client, grant: *grant, token: *token, based_on: (*read)? };
                state.messages.push(message);
            }
            Action::Release(client) => {
                let Client::Holding { grant, .. } = state.clients[usize::from(client)] else { return None };
                state.held = state.held.filter(|(held, _)| *held != grant);
                state.clients[usize::from(client)] = Client::Idle;
            }
            Action::Forget => {
                (state.forgot, state.held) = (true, None);
                state.counter = if self.keeps_tokens { state.counter } else { 0 };
                if self.quarantines {
                    state.quarantined_until = state.now + TTL;
                }
            }
        }
        // The order in which messages were sent means nothing on this network.
        state.messages.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let twice = |_: &Self, state: &State| state.wrote_twice;
        let mut properties = vec![
            Property::always("S1 windows", |_, state| !(holds(state, 0) && holds(state, 1))),
            Property::always("S2 tokens", |_, state: &State| !state.fell),
            Property::always("S7 updates", |_, state: &State| !state.lost_update),
            Property::sometimes("a write", |_, state: &State| state.version > 0),
        ];
        if self.writes > 1 && self.equal_admitted {
            properties.push(Property::sometimes("two writes of one grant", twice));
        }
        if self.writes > 1 && !self.equal_admitted {
            properties.push(Property::always("no second write", |_, state: &State| !state.wrote_twice));
        }
        properties
    }
}

/// Deeper where there is time; a store that forgets has many more states.
fn sized(model: Lease) -> Lease {
    match (deep(), model.forgets) {
        (false, _) => model,
        (true, false) => Lease { ticks: 6, writes: 2, ..model },
        (true, true) => Lease { ticks: 6, ..model },
    }
}

#[test]
fn the_full_protocol_holds() {
    assert!(violated("lease: full", sized(FULL)).is_empty());
    let long = Lease { ticks: 3, grants: 2, writes: 2, ..FULL };
    assert!(violated("lease: two writes of one grant", long).is_empty());
}

#[test]
fn a_window_counted_from_the_reply_overlaps() {
    assert_eq!(violated("lease: window from the reply", Lease { from_reply: true, ..FULL }), ["S1 windows"]);
}

#[test]
fn without_a_seal_an_update_is_lost() {
    assert_eq!(violated("lease: no seal", Lease { seals: false, ..FULL }), ["S7 updates"]);
    let strict = Lease { seals: false, equal_admitted: false, ..FULL };
    assert_eq!(violated("lease: strict fence, no seal", strict), ["S7 updates"]);
}

#[test]
fn a_strict_fence_admits_no_second_write() {
    // Nothing that the seal let read can be written at all.
    let strict = Lease { seals: false, equal_admitted: false, ticks: 3, grants: 1, writes: 2, ..FULL };
    assert!(violated("lease: strict fence, two writes", strict).is_empty());
}

#[test]
fn a_store_that_forgets_needs_quarantine_and_floor() {
    let forgets = Lease { forgets: true, writes: 1, ..FULL };
    assert!(!violated("lease: store forgets", forgets).is_empty());
    // Where tokens are not forgotten, it shows what else is broken.
    let grants_only = Lease { keeps_tokens: true, ..forgets };
    assert_eq!(violated("lease: store forgets grants", grants_only), ["S1 windows"]);
    // A time floor needs time to have passed since, which quarantine sees to.
    assert!(!violated("lease: + time floor alone", Lease { floors: true, ..forgets }).is_empty());
    let quarantined = Lease { quarantines: true, ..forgets };
    assert_eq!(violated("lease: + quarantine", quarantined), ["S2 tokens"]);
    assert!(
        violated("lease: + quarantine + time floor", sized(Lease { floors: true, ..quarantined })).is_empty()
    );
}
