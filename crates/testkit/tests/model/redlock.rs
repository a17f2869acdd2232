//! Three independent members, grants by majority, tokens drawn by each: does the order of grants show in their tokens?
//! Members forget nothing here, and a lease ends when its holder ends it or has died; time is not needed.

use stateright::{Model, Property};

use crate::{deep, violated};

const MEMBERS: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Redlock {
    two_phases: bool,
    attempts: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Member {
    /// Attempt and token.
    lease: Option<(u8, u8)>,
    token: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum Claimant {
    #[default]
    Idle,
    /// The tokens that members have answered with.
    Keeping([Option<u8>; MEMBERS]),
    Settling {
        token: u8,
        asked: [bool; MEMBERS],
        done: [bool; MEMBERS],
    },
    /// Granted with this token.
    Granted,
    Over,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct State {
    members: [Member; MEMBERS],
    /// One attempt after another may begin while earlier ones are under way.
    claimants: Vec<Claimant>,
    /// The highest token of a grant that was complete before each attempt began.
    before: Vec<u8>,
    highest: u8,
    fell: bool,
    grants: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Begin,
    /// The first step arrives at a member and is answered.
    Keep(u8, u8),
    /// The claimant has heard a majority, and goes on.
    Decide(u8),
    /// The second step arrives at a member and is answered.
    Settle(u8, u8),
    /// The claimant gives up, or releases, or its time is over: from now on members may let go.
    End(u8),
    /// A member lets go of what is over.
    LetGo(u8),
}

const MAJORITY: usize = MEMBERS / 2 + 1;

impl Redlock {
    fn granted(state: &mut State, attempt: u8, token: u8) {
        let at = usize::from(attempt);
        state.claimants[at] = Claimant::Granted;
        state.fell |= token <= state.before[at];
        state.highest = state.highest.max(token);
        state.grants += 1;
    }
}

impl Model for Redlock {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.claimants.len() < usize::from(self.attempts) {
            actions.push(Action::Begin);
        }
        for (attempt, claimant) in (0u8..).zip(&state.claimants) {
            for (member, at) in (0u8..).zip(0..MEMBERS) {
                match claimant {
                    Claimant::Keeping(heard) if heard[at].is_none() && state.members[at].lease.is_none() => {
                        actions.push(Action::Keep(attempt, member));
                    }
                    Claimant::Settling { asked, done, .. } if asked[at] && !done[at] => {
                        actions.push(Action::Settle(attempt, member));
                    }
                    _ => {}
                }
            }
            match claimant {
                Claimant::Keeping(heard) => {
                    if heard.iter().flatten().count() >= MAJORITY {
                        actions.push(Action::Decide(attempt));
                    }
                    actions.push(Action::End(attempt));
                }
                Claimant::Settling { .. } | Claimant::Granted => actions.push(Action::End(attempt)),
                Claimant::Idle | Claimant::Over => {}
            }
        }
        for (member, at) in (0u8..).zip(state.members) {
            let over = |attempt: u8| state.claimants[usize::from(attempt)] == Claimant::Over;
            if at.lease.is_some_and(|(attempt, _)| over(attempt)) {
                actions.push(Action::LetGo(member));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin => {
                state.claimants.push(Claimant::Keeping([None; MEMBERS]));
                state.before.push(state.highest);
            }
            Action::Keep(attempt, member) => {
                let at = usize::from(member);
                let token = state.members[at].token + 1;
                state.members[at] = Member { lease: Some((attempt, token)), token };
                if let Claimant::Keeping(heard) = &mut state.claimants[usize::from(attempt)] {
                    heard[at] = Some(token);
                }
            }
            Action::Decide(attempt) => {
                let Claimant::Keeping(heard) = state.claimants[usize::from(attempt)] else { return None };
                let highest = heard.iter().flatten().copied().max()?;
                if self.two_phases {
                    let asked = heard.map(|token| token.is_some());
                    let done = [false; MEMBERS];
                    state.claimants[usize::from(attempt)] =
                        Claimant::Settling { token: highest + 1, asked, done };
                } else {
                    Self::granted(&mut state, attempt, highest);
                }
            }
            Action::Settle(attempt, member) => {
                let at = usize::from(member);
                let Claimant::Settling { token, done, .. } = &mut state.claimants[usize::from(attempt)]
                else {
                    return None;
                };
                if state.members[at].lease.is_none_or(|(keeper, _)| keeper != attempt) {
                    return None;
                }
                state.members[at].lease = Some((attempt, *token));
                state.members[at].token = state.members[at].token.max(*token);
                done[at] = true;
                let (token, count) = (*token, done.iter().filter(|done| **done).count());
                if count == MAJORITY {
                    Self::granted(&mut state, attempt, token);
                }
            }
            Action::End(attempt) => state.claimants[usize::from(attempt)] = Claimant::Over,
            Action::LetGo(member) => state.members[usize::from(member)].lease = None,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("S2 tokens", |_, state: &State| !state.fell),
            Property::always("S1 one at a time", |_, state: &State| {
                state.claimants.iter().filter(|claimant| **claimant == Claimant::Granted).count() <= 1
            }),
            Property::sometimes("two grants", |_, state: &State| state.grants > 1),
        ]
    }
}

#[test]
fn two_phases_keep_the_order_of_tokens() {
    let attempts = if deep() { 4 } else { 3 };
    assert!(violated("redlock: two phases", Redlock { two_phases: true, attempts }).is_empty());
}

#[test]
fn one_phase_does_not() {
    assert_eq!(violated("redlock: one phase", Redlock { two_phases: false, attempts: 3 }), ["S2 tokens"]);
}
