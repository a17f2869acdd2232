//! The holder's state machine.
