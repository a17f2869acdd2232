//! Expiry by observation: a holder that renews, and a waiter that takes the row once it has stood still in its sight for the
//! TTL. The server judges no time.

use stateright::{Model, Property};

use crate::{deep, violated};

const TTL: u8 = 2;

#[derive(Clone, Copy, Debug)]
struct Observed {
    ticks: u8,
    renewals: u8,
    /// The waiter counts from the send of the look that first showed the row, and not from the reply.
    from_send: bool,
    /// The waiter takes the row whatever it says by now.
    without_comparing: bool,
}

const RIGHT: Observed = Observed { ticks: 6, renewals: 3, from_send: false, without_comparing: false };

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Message {
    Renew { sent: u8 },
    Renewed { sent: u8 },
    Look { sent: u8 },
    Looked { sent: u8, sequence: u8 },
    Take { sent: u8, sequence: u8 },
    Taken { sent: u8 },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct State {
    now: u8,
    messages: Vec<Message>,
    /// Renewals counted in the row, and whether it is the waiter's now.
    sequence: u8,
    taken: bool,
    holder_close: u8,
    renewals: u8,
    waiter_close: u8,
    /// What the waiter saw, and since when.
    sight: Option<(u8, u8)>,
    busy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Tick,
    Deliver(u8),
    Renew,
    Look,
    Take,
}

impl Observed {
    fn deliver(self, state: &mut State, message: Message) {
        match message {
            Message::Renew { sent } => {
                if !state.taken {
                    state.sequence += 1;
                    state.messages.push(Message::Renewed { sent });
                }
            }
            Message::Renewed { sent } => {
                // An answer after the close brings nothing back.
                if state.now < state.holder_close {
                    state.holder_close = state.holder_close.max(sent + TTL);
                }
            }
            Message::Look { sent } => {
                state.messages.push(Message::Looked { sent, sequence: state.sequence });
            }
            Message::Looked { sent, sequence } => {
                state.busy = false;
                let since = if self.from_send { sent } else { state.now };
                if state.sight.is_none_or(|(seen, _)| seen != sequence) {
                    state.sight = Some((sequence, since));
                }
            }
            Message::Take { sent, sequence } => {
                if !state.taken && (self.without_comparing || state.sequence == sequence) {
                    state.taken = true;
                    state.messages.push(Message::Taken { sent });
                }
            }
            Message::Taken { sent } => state.waiter_close = sent + TTL,
        }
    }
}

impl Model for Observed {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { holder_close: TTL, ..State::default() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.ticks {
            actions.push(Action::Tick);
        }
        actions.extend((0..state.messages.len()).map(|at| Action::Deliver(u8::try_from(at).unwrap())));
        if state.now < state.holder_close && state.renewals < self.renewals {
            actions.push(Action::Renew);
        }
        if !state.busy {
            actions.push(Action::Look);
            if state.sight.is_some_and(|(_, since)| state.now >= since + TTL) {
                actions.push(Action::Take);
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let sent = state.now;
        match action {
            Action::Tick => state.now += 1,
            Action::Deliver(at) => {
                let message = state.messages.remove(usize::from(at));
                self.deliver(&mut state, message);
            }
            Action::Renew => {
                state.renewals += 1;
                state.messages.push(Message::Renew { sent });
            }
            Action::Look => {
                state.busy = true;
                state.messages.push(Message::Look { sent });
            }
            Action::Take => {
                let (sequence, _) = state.sight?;
                state.busy = true;
                state.messages.push(Message::Take { sent, sequence });
            }
        }
        state.messages.sort_unstable();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("S1 windows", |_, state: &State| {
                !(state.now < state.holder_close && state.now < state.waiter_close)
            }),
            Property::sometimes("the waiter holds", |_, state: &State| state.now < state.waiter_close),
        ]
    }
}

#[test]
fn a_row_that_stood_still_may_be_taken() {
    let ticks = if deep() { 8 } else { 6 };
    assert!(violated("observed: right", Observed { ticks, ..RIGHT }).is_empty());
}

#[test]
fn counting_from_the_send_of_the_look_overlaps() {
    assert_eq!(violated("observed: from the send", Observed { from_send: true, ..RIGHT }), ["S1 windows"]);
}

#[test]
fn taking_without_comparing_overlaps() {
    let model = Observed { without_comparing: true, ..RIGHT };
    assert_eq!(violated("observed: without comparing", model), ["S1 windows"]);
}
