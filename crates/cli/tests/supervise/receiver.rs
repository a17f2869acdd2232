//! A command that writes down every signal it gets: `supervise receiver`, with `$D` the folder of the test.

use std::fs::OpenOptions;
use std::io::Write;
use std::mem::MaybeUninit;

pub(crate) fn main() -> ! {
    let dir = std::env::var("D").unwrap();
    let mut file = OpenOptions::new().append(true).create(true).open(format!("{dir}/got")).unwrap();
    // SAFETY: every structure is initialised by the call before its use.
    unsafe {
        let mut set = MaybeUninit::uninit();
        libc::sigfillset(set.as_mut_ptr());
        let set = set.assume_init();
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        std::fs::write(format!("{dir}/ready"), std::process::id().to_string()).unwrap();
        loop {
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            let signo = libc::sigwaitinfo(&raw const set, info.as_mut_ptr());
            if signo > 0 {
                let value = info.assume_init().si_value().sival_ptr.addr();
                let value = if info.assume_init().si_code == libc::SI_QUEUE { value } else { 0 };
                file.write_all(format!("{signo} {value}\n").as_bytes()).unwrap();
            }
        }
    }
}
