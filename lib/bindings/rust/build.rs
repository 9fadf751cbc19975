//! Compiles the allocator into a static library in which only its interface is visible.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders of the allocator, without its interfaces to programs.
const CORE: &[&str] = &["cache", "diagnostics", "front/malloc", "memory", "platform", "process"];
/// What has the interface of sheaf/malloc.h.
const PREFIXED: &[&str] = &["lib/front/api/malloc.c", "lib/front/api/static.c"];
/// What defines malloc itself: the files of libsheaf-malloc.a in preload/meson.build.
const OVERRIDE: &[&str] = &[
    "lib/front/api/static.c",
    "preload/atfork.c",
    "preload/clone.c",
    "preload/control.c",
    "preload/introspect.c",
    "preload/malloc.c",
    "preload/names.c",
    "preload/options.c",
    "preload/profile.c",
    "preload/record.c",
    "preload/record_file.c",
    "preload/start.c",
    "preload/static.c",
    "preload/status.c",
    "preload/vfork.c",
];

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}

/// All C files in a folder and in those below it.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {}", folder.display(), e));
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension() == Some(OsStr::new("c")) {
            found.push(path);
        }
    }
}

/// The flags of lib/meson.build. The code is always optimized: its sections need constants in registers.
fn compiler(root: &Path) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .include(root)
        .include(root.join("lib"))
        .include(root.join("lib/include"))
        .std("gnu17")
        .opt_level(2)
        .pic(true)
        .warnings(false)
        .cargo_metadata(false)
        .define("SHEAF_SPACING", "8")
        .define("SHEAF_VERSION", Some(format!("\"{}\"", variable("CARGO_PKG_VERSION")).as_str()))
        .flag("-fvisibility=hidden")
        .flag("-fno-strict-aliasing");
    for name in ["malloc", "calloc", "realloc", "free"] {
        build.flag(format!("-fno-builtin-{}", name).as_str());
    }
    for flag in ["-fno-plt", "-Wno-missing-attributes"] {
        build.flag_if_supported(flag);
    }
    kernel_headers(&mut build);
    build
}

/// musl-gcc has no headers of the kernel; those of the build machine follow all others, as in lib/meson.build.
fn kernel_headers(build: &mut cc::Build) {
    let run = |args: &[&str]| build.get_compiler().to_command().args(args).output().ok().filter(|o| o.status.success());
    if run(&["-E", "-include", "linux/futex.h", "-x", "c", "/dev/null"]).is_some() {
        return;
    }
    let multiarch = run(&["-print-multiarch"]).map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    for folder in ["/usr/include".to_owned(), format!("/usr/include/{}", multiarch.unwrap_or_default())] {
        build.flag("-idirafter").flag(folder.as_str());
    }
}

/// Joins the archives to one whose internal names cannot clash with other libraries' (lib/archive says how).
fn hide(root: &Path, out: &Path, members: &[&str], compiler: &cc::Tool) {
    let paths: Vec<_> = members.iter().map(|name| out.join(format!("lib{}.a", name)).display().to_string()).collect();
    let mut command = Command::new("sh");
    command.arg(root.join("lib/archive")).arg(out.join("libsheaf.a"));
    // With musl Sheaf defines this for libgcc_eh, which may be one for glibc.
    command.args(["-g", "_dl_find_object"]);
    command.arg(paths.join(",")).arg("--").args(compiler.to_command().get_program().to_str());
    let status = command.status().expect("lib/archive needs a shell; install one");
    assert!(status.success(), "lib/archive failed: {:?}; it needs ar, objcopy and readelf (binutils)", command);
}

fn main() {
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let (os, machine) = (variable("CARGO_CFG_TARGET_OS"), variable("CARGO_CFG_TARGET_ARCH"));
    let known = os == "linux" && ["x86_64", "aarch64"].contains(&machine.as_str());
    assert!(known, "sheaf-malloc: {} on {}: not supported; use it on Linux with x86_64 or aarch64 only", os, machine);

    let mut core = Vec::new();
    for folder in CORE {
        sources(&root.join("lib").join(folder), &mut core);
    }
    core.sort();
    compiler(&root).files(core).compile("sheaf-core");

    let own = env::var_os("CARGO_FEATURE_OVERRIDE").is_some();
    let mut entry = compiler(&root);
    if own {
        entry.define("SHEAF_STATIC", None).flag("-fexceptions").flag_if_supported("-fno-semantic-interposition");
    }
    entry.files((if own { OVERRIDE } else { PREFIXED }).iter().map(|name| root.join(name))).compile("sheaf-entry");
    hide(&root, &out, &["sheaf-core", "sheaf-entry"], &compiler(&root).get_compiler());

    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=sheaf");
    println!("cargo:include={}", root.join("lib/include").display());
    for path in ["lib", "preload"] {
        println!("cargo:rerun-if-changed={}", root.join(path).display());
    }
}
