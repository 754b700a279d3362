//! Steps through a subject's operation, and copies the subject where a fault is injected. The
//! registers that an instruction can damage are at the end of the file.
//!
//! Every process here is traced by the thread that started it, and ends with its [`Tracee`].
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use nix::libc::{SYS_fork, user_fpregs_struct, user_regs_struct};
use nix::sys::personality::{self, Persona};
use nix::sys::ptrace::{self, Options, regset};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use object::{Object, ObjectSymbol};

use crate::model::Random;
use crate::{Faults, Verdict};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A copy that runs longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of instructions to name of a copy that hangs, or number of bytes of its stack to search.
const STEPS_SAMPLED: usize = 2000;
const STACK_SAMPLED: usize = 8 << 10;
/// The longest instruction.
const INSTRUCTION_LEN: usize = 15;
const BREAKPOINT: u8 = 0xcc;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// A program that is a subject.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    begins: u64,
    ends: u64,
}

impl Program {
    pub(crate) fn open(path: &Path) -> Result<Program> {
        let bytes = std::fs::read(path)?;
        let file = object::File::parse(&*bytes)?;
        let address = |name: &str| {
            let symbol = file
                .symbols()
                .find(|symbol| symbol.name().is_ok_and(|of| of.contains(name)));
            symbol
                .map(|symbol| symbol.address())
                .ok_or(format!("{} has no symbol {name}", path.display()))
        };
        Ok(Program {
            path: path.canonicalize()?,
            begins: address("operation_begins")?,
            ends: address("operation_ends")?,
        })
    }
}

/// A part of a process's address space, and the file that is mapped there.
#[derive(Debug, Clone)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    is_executable: bool,
    pub(crate) path: PathBuf,
}

/// A process that is stopped, except inside the methods here.
#[derive(Debug)]
struct Tracee {
    pid: Pid,
    memory: File,
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if kill(self.pid, Signal::SIGKILL).is_ok() {
            while matches!(waitpid(self.pid, Some(WaitPidFlag::__WALL)), Ok(status) if !is_end(status))
            {
            }
        }
    }
}

fn is_end(status: WaitStatus) -> bool {
    matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..))
}

impl Tracee {
    fn of(pid: Pid) -> Result<Tracee> {
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))?;
        Ok(Tracee { pid, memory })
    }

    /// Starts a subject, with the same addresses each time, up to its call of `ready`.
    fn spawn(program: &Program, arguments: &[String], errors: Stdio) -> Result<Tracee> {
        personality::set(personality::get()? | Persona::ADDR_NO_RANDOMIZE)?;
        let mut command = Command::new(&program.path);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().try_into()?);
        match waitpid(pid, None)? {
            WaitStatus::Stopped(_, Signal::SIGSTOP) => {}
            status => return Err(format!("the subject did not become ready: {status:?}").into()),
        }
        ptrace::setoptions(
            pid,
            Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACEFORK,
        )?;
        Tracee::of(pid)
    }

    fn mappings(&self) -> Result<Vec<Mapping>> {
        let text = std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        text.lines()
            .map(|line| mapping(line).ok_or_else(|| format!("not a mapping: {line}").into()))
            .collect()
    }

    fn wait(&self) -> Result<WaitStatus> {
        Ok(waitpid(self.pid, Some(WaitPidFlag::__WALL))?)
    }

    fn run_to(&self, address: u64) -> Result<()> {
        let mut before = [0];
        self.memory.read_exact_at(&mut before, address)?;
        self.memory.write_all_at(&[BREAKPOINT], address)?;
        ptrace::cont(self.pid, None)?;
        match self.wait()? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            status => return Err(format!("the operation did not begin: {status:?}").into()),
        }
        self.memory.write_all_at(&before, address)?;
        let mut registers = ptrace::getregs(self.pid)?;
        registers.rip = address;
        Ok(ptrace::setregs(self.pid, registers)?)
    }

    /// Lets the process execute one instruction, and returns how it stopped. The end of a copy does
    /// not count.
    fn advance(&self) -> Result<WaitStatus> {
        loop {
            ptrace::step(self.pid, None)?;
            match self.wait()? {
                WaitStatus::Stopped(_, Signal::SIGCHLD) => {}
                status => return Ok(status),
            }
        }
    }

    /// Executes one instruction.
    fn step(&self) -> Result<user_regs_struct> {
        match self.advance()? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(ptrace::getregs(self.pid)?),
            status => Err(format!("a step without a fault ended with {status:?}").into()),
        }
    }

    /// Copies the process in its present state: makes it call `fork` by an instruction `syscall`
    /// anywhere in its memory.
    fn fork(&self, syscall: u64) -> Result<Tracee> {
        let registers = ptrace::getregs(self.pid)?;
        let call = user_regs_struct {
            rip: syscall,
            rax: SYS_fork.cast_unsigned(),
            ..registers
        };
        ptrace::setregs(self.pid, call)?;
        match self.advance()? {
            WaitStatus::PtraceEvent(..) => {}
            status => return Err(format!("the subject did not fork: {status:?}").into()),
        }
        let copy = Tracee::of(Pid::from_raw(ptrace::getevent(self.pid)?.try_into()?))?;
        let WaitStatus::Stopped(..) = copy.wait()? else {
            return Err("the copy did not stop".into());
        };
        self.step()?;
        let restored = user_regs_struct {
            orig_rax: u64::MAX,
            ..registers
        };
        ptrace::setregs(self.pid, restored)?;
        ptrace::setregs(copy.pid, restored)?;
        Ok(copy)
    }

    /// Lets the process run to its end. Returns the verdict, and a sample if it hangs.
    fn finish(self) -> Result<(Verdict, Vec<u64>)> {
        let deadline = Instant::now() + PATIENCE;
        ptrace::cont(self.pid, None)?;
        let verdict = loop {
            match waitpid(self.pid, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG))? {
                WaitStatus::StillAlive if Instant::now() > deadline => {
                    return Ok((Verdict::Hung, self.sample().unwrap_or_default()));
                }
                WaitStatus::StillAlive => std::thread::sleep(Duration::from_micros(100)),
                WaitStatus::Exited(_, code) => break Verdict::of_code(code),
                WaitStatus::Signaled(_, Signal::SIGXCPU, _) => break Verdict::Hung,
                WaitStatus::Signaled(..) => break Verdict::Crashed,
                WaitStatus::Stopped(_, signal) => ptrace::cont(self.pid, signal)?,
                status => return Err(format!("a copy ended with {status:?}").into()),
            }
        };
        Ok((verdict, Vec::new()))
    }

    /// The addresses of the next instructions of a running process. If the process waits in a
    /// system call, the words of its stack, of which some are return addresses.
    fn sample(&self) -> Result<Vec<u64>> {
        kill(self.pid, Signal::SIGSTOP)?;
        self.wait()?;
        let mut registers = ptrace::getregs(self.pid)?;
        if registers.orig_rax != u64::MAX {
            let mut stack = vec![0; STACK_SAMPLED];
            let read = self.memory.read_at(&mut stack, registers.rsp)?;
            let (words, _) = stack[..read].as_chunks::<8>();
            return Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect());
        }
        let (mut addresses, mut next) = (Vec::new(), [0; SYSCALL.len()]);
        while addresses.len() < STEPS_SAMPLED && next != SYSCALL {
            registers = self.step()?;
            addresses.push(registers.rip);
            self.memory.read_exact_at(&mut next, registers.rip)?;
        }
        Ok(addresses)
    }
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let access = fields.next()?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        offset: number(fields.next()?)?,
        is_executable: access.contains('x'),
        path: fields.nth(2).unwrap_or_default().into(),
    })
}

/// The address of any instruction `syscall`.
fn syscall_of(tracee: &Tracee, mappings: &[Mapping]) -> Result<u64> {
    for mapping in mappings.iter().filter(|mapping| mapping.is_executable) {
        let mut bytes = vec![0; usize::try_from(mapping.end - mapping.start)?];
        if tracee
            .memory
            .read_exact_at(&mut bytes, mapping.start)
            .is_ok()
            && let Some(at) = bytes
                .windows(SYSCALL.len())
                .position(|pair| pair == SYSCALL)
        {
            return Ok(mapping.start + at as u64);
        }
    }
    Err("the subject has no system call".into())
}

/// A walk through an operation, from its first to its last instruction.
struct Walk<'w> {
    tracee: &'w Tracee,
    ends: u64,
    faults: Faults,
    decoded: HashMap<u64, Decoded>,
    /// The return addresses.
    stack: Vec<u64>,
    index: u64,
    address: u64,
}

impl<'w> Walk<'w> {
    fn new(tracee: &'w Tracee, ends: u64, faults: Faults) -> Result<Self> {
        let address = ptrace::getregs(tracee.pid)?.rip;
        Ok(Walk {
            tracee,
            ends,
            faults,
            decoded: HashMap::new(),
            stack: Vec::new(),
            index: 0,
            address,
        })
    }

    fn has_ended(&self) -> bool {
        self.address == self.ends
    }

    fn instruction(&mut self) -> Result<&Decoded> {
        if !self.decoded.contains_key(&self.address) {
            let mut bytes = [0; INSTRUCTION_LEN];
            let read = self.tracee.memory.read_at(&mut bytes, self.address)?;
            self.decoded.insert(
                self.address,
                Decoded::of(&bytes[..read], self.address, self.faults),
            );
        }
        Ok(&self.decoded[&self.address])
    }

    fn step(&mut self) -> Result<()> {
        let (is_call, is_return, next) = {
            let instruction = self.instruction()?;
            (instruction.is_call, instruction.is_return, instruction.next)
        };
        self.address = self.tracee.step()?.rip;
        if is_call {
            self.stack.push(next);
        } else if is_return {
            self.stack.pop();
        }
        self.index += 1;
        Ok(())
    }
}

/// One fault and its result.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) number: usize,
    pub(crate) what: String,
    /// The instruction's address, and the return addresses below it, outermost first.
    pub(crate) address: u64,
    pub(crate) stack: Vec<u64>,
    pub(crate) verdict: Verdict,
    /// A sample of a copy that hangs: see `Tracee::sample`.
    pub(crate) loops: Vec<u64>,
}

/// The faults of one operation.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) instructions: u64,
    /// Number of registers and flags that a fault can damage, over all instructions.
    pub(crate) sites: u64,
    pub(crate) trials: Vec<Trial>,
    pub(crate) mappings: Vec<Mapping>,
}

/// Draws `count` faults by `random` and tries them; with `only`, it tries that one alone.
pub(crate) fn round(
    program: &Program,
    arguments: &[String],
    faults: Faults,
    (count, only): (usize, Option<usize>),
    mut random: Random,
) -> Result<Round> {
    // A repeated trial shows its error messages.
    let errors = only.map_or_else(Stdio::null, |_| Stdio::inherit());
    let subject = Tracee::spawn(program, arguments, errors)?;
    let mappings = subject.mappings()?;
    let is_first = |mapping: &&Mapping| mapping.path == program.path && mapping.offset == 0;
    let base = mappings
        .iter()
        .find(is_first)
        .ok_or("the program is not mapped")?
        .start;
    subject.run_to(base + program.begins)?;
    let syscall = syscall_of(&subject, &mappings)?;

    let mut sites = Vec::new();
    let counted = subject.fork(syscall)?;
    let mut walk = Walk::new(&counted, base + program.ends, faults)?;
    while !walk.has_ended() {
        let index = walk.index;
        sites.extend((0..walk.instruction()?.targets.len()).map(|target| (index, target)));
        walk.step()?;
    }
    let instructions = walk.index;
    drop(counted);
    if sites.is_empty() {
        return Err("the operation has no instruction that can be spoiled".into());
    }

    let (control, _) = subject.fork(syscall)?.finish()?;
    if control != Verdict::Right {
        return Err(format!("without a fault the verdict is {control:?}").into());
    }
    let mut drawn: Vec<_> = (0..count)
        .map(|number| {
            (
                sites[usize::try_from(random.below(sites.len() as u64)).unwrap_or(0)],
                random.draw(),
                number,
            )
        })
        .filter(|(.., number)| only.is_none_or(|only| only == *number))
        .collect();
    drawn.sort_unstable();
    let mut walk = Walk::new(&subject, base + program.ends, faults)?;
    let mut trials = Vec::new();
    for ((index, target), bit, number) in drawn {
        while walk.index < index && !walk.has_ended() {
            walk.step()?;
        }
        let Some(target) = walk.instruction()?.targets.get(target).copied() else {
            continue;
        };
        let copy = subject.fork(syscall)?;
        if target.when == When::After {
            copy.step()?;
        }
        let what = flip(copy.pid, target, bit)?;
        let (address, stack) = (walk.address, walk.stack.clone());
        let (verdict, loops) = copy.finish()?;
        trials.push(Trial {
            number,
            what,
            address,
            stack,
            verdict,
            loops,
        });
    }
    Ok(Round {
        instructions,
        sites: sites.len() as u64,
        trials,
        mappings,
    })
}

/// CF, ZF, SF, OF: the flags that a branch reads.
const FLAGS: [u32; 4] = [0, 6, 7, 11];

/// Whether the register is damaged before the instruction reads it, or after it wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    After,
}

/// A register, or the flags (`Register::None`), that a fault at one instruction can damage.
#[derive(Debug, Clone, Copy)]
struct Target {
    when: When,
    register: Register,
    bits: u32,
}

/// One decoded instruction.
#[derive(Debug, Clone)]
struct Decoded {
    targets: Vec<Target>,
    is_call: bool,
    is_return: bool,
    next: u64,
}

impl Decoded {
    /// Decodes the instruction at the start of `bytes`, which are at `address`.
    fn of(bytes: &[u8], address: u64, faults: Faults) -> Decoded {
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let targets = match faults {
            Faults::Moves => of_compare_or_move(&instruction).into_iter().collect(),
            Faults::Any => of_any(&instruction),
        };
        let flow = instruction.flow_control();
        Decoded {
            targets,
            is_call: matches!(flow, FlowControl::Call | FlowControl::IndirectCall),
            is_return: flow == FlowControl::Return,
            next: instruction.next_ip(),
        }
    }
}

/// RocksDB's rule: at a comparison, the fault flips a flag. At a move between a register and
/// memory, it flips a bit of the low byte of the register, or any bit of a vector register. Moves
/// of the stack pointer, and moves that only load or store stack slots, do not count.
fn of_compare_or_move(instruction: &Instruction) -> Option<Target> {
    if matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test) {
        return Some(Target {
            when: When::After,
            register: Register::None,
            bits: 0,
        });
    }
    let name = format!("{:?}", instruction.mnemonic());
    let is_move = name.starts_with("Mov") || name.starts_with("Vmov");
    if !is_move || instruction.op_count() != 2 || is_stack_slot(instruction) {
        return None;
    }
    let (to, from) = (instruction.op_kind(0), instruction.op_kind(1));
    let (register, when) = match (to, from) {
        (OpKind::Register, OpKind::Memory) => (instruction.op_register(0), When::After),
        (OpKind::Memory, OpKind::Register) => (instruction.op_register(1), When::Before),
        _ => return None,
    };
    let bits = if register.is_vector_register() {
        128
    } else {
        8
    };
    is_data(register).then_some(Target {
        when,
        register,
        bits,
    })
}

fn is_stack_slot(instruction: &Instruction) -> bool {
    let is_frame = matches!(
        instruction.memory_base().full_register(),
        Register::RSP | Register::RBP
    );
    is_frame && instruction.memory_index() == Register::None
}

/// Whether a register holds data. The upper halves of wide vectors are left out.
fn is_data(register: Register) -> bool {
    let full = register.full_register();
    let is_general = full.is_gpr64() && !matches!(full, Register::RSP | Register::RBP);
    is_general || (full.is_vector_register() && full.number() < 16)
}

/// Every register that the instruction reads or writes, except the instruction pointer.
fn of_any(instruction: &Instruction) -> Vec<Target> {
    let mut targets = Vec::new();
    for used in InstructionInfoFactory::new()
        .info(instruction)
        .used_registers()
    {
        let register = used.register();
        let is_vector = register.is_vector_register() && register.full_register().number() < 16;
        if !register.full_register().is_gpr64() && !is_vector {
            continue;
        }
        let bits = u32::try_from(register.size() * 8).unwrap_or(64).min(128);
        let access = used.access();
        if matches!(
            access,
            OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead
        ) {
            targets.push(Target {
                when: When::Before,
                register,
                bits,
            });
        }
        if matches!(access, OpAccess::Write | OpAccess::ReadWrite) {
            targets.push(Target {
                when: When::After,
                register,
                bits,
            });
        }
    }
    if instruction.rflags_modified() != 0 {
        targets.push(Target {
            when: When::After,
            register: Register::None,
            bits: 0,
        });
    }
    targets
}

/// Flips a bit of `target` in a stopped process; `draw` chooses the bit. Returns a description.
fn flip(pid: Pid, target: Target, draw: u64) -> nix::Result<String> {
    let below = |bound: u32| u32::try_from(draw % u64::from(bound.max(1))).unwrap_or(0);
    if target.register == Register::None {
        let bit = FLAGS[below(4) as usize];
        let mut registers = ptrace::getregs(pid)?;
        registers.eflags ^= 1 << bit;
        ptrace::setregs(pid, registers)?;
        return Ok(format!("flag {bit}"));
    }
    let bit = below(target.bits);
    if target.register.is_vector_register() {
        let mut vectors: user_fpregs_struct = ptrace::getregset::<regset::NT_PRFPREG>(pid)?;
        let word = target.register.full_register().number() * 4 + bit as usize / 32;
        vectors.xmm_space[word] ^= 1 << (bit % 32);
        ptrace::setregset::<regset::NT_PRFPREG>(pid, vectors)?;
    } else {
        let mut registers = ptrace::getregs(pid)?;
        let high = matches!(
            target.register,
            Register::AH | Register::BH | Register::CH | Register::DH
        );
        if let Some(word) = word_of(&mut registers, target.register.full_register()) {
            *word ^= 1 << (bit + if high { 8 } else { 0 });
        }
        ptrace::setregs(pid, registers)?;
    }
    Ok(format!("{:?} bit {bit}", target.register).to_lowercase())
}

fn word_of(registers: &mut user_regs_struct, register: Register) -> Option<&mut u64> {
    Some(match register {
        Register::RAX => &mut registers.rax,
        Register::RBX => &mut registers.rbx,
        Register::RCX => &mut registers.rcx,
        Register::RDX => &mut registers.rdx,
        Register::RSI => &mut registers.rsi,
        Register::RDI => &mut registers.rdi,
        Register::RBP => &mut registers.rbp,
        Register::RSP => &mut registers.rsp,
        Register::R8 => &mut registers.r8,
        Register::R9 => &mut registers.r9,
        Register::R10 => &mut registers.r10,
        Register::R11 => &mut registers.r11,
        Register::R12 => &mut registers.r12,
        Register::R13 => &mut registers.r13,
        Register::R14 => &mut registers.r14,
        Register::R15 => &mut registers.r15,
        _ => return None,
    })
}
