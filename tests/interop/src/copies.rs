//! How many copies of ggml are in this process.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;

use crate::Result;

/// A function that every copy has.
const FUNCTION: &CStr = c"ggml_init";

/// Loads a library besides those that the program was linked with, and keeps it.
pub fn load(path: &Path) -> Result<()> {
    let name = CString::new(path.as_os_str().as_encoded_bytes())?;
    // SAFETY: a C string; the library is a copy of ggml's, whose initialisers do nothing outside of it.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() { Err(format!("cannot load {}", path.display()).into()) } else { Ok(()) }
}

/// The files that the copies are in: the one that this program calls, those of which a loaded library offers the function,
/// and those that are mapped under ggml's name.
pub fn count() -> Result<BTreeSet<String>> {
    let mut files = BTreeSet::from([file_of(ggml::sys::ggml_init as *const c_void)?]);
    files.insert(file_of(llama_cpp_sys_2::ggml_init as *const c_void)?);
    for address in offered() {
        files.insert(file_of(address as *const c_void)?);
    }
    files.extend(mapped()?);
    Ok(files)
}

/// The file that an address is in.
fn file_of(address: *const c_void) -> Result<String> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: any address may be asked about; `info` is written.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 {
        return Err("an address is in no file".into());
    }
    // SAFETY: the loader's name of an object that stays loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Ok(std::fs::canonicalize(name.to_str()?)?.display().to_string())
}

/// The addresses of the function in all loaded objects that have it themselves.
fn offered() -> BTreeSet<usize> {
    let mut names: Vec<CString> = Vec::new();
    // SAFETY: the callback takes the data for what it is, and is done when this returns.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut names).cast()) };
    names.iter().filter_map(|name| in_object(name)).collect()
}

/// Keeps the name of a loaded object.
///
/// # Safety
///
/// `data` has to be a `Vec<CString>` that nobody else uses.
unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader's, live for this call.
    let name = unsafe { (*info).dlpi_name };
    // SAFETY: by the contract.
    let names = unsafe { &mut *data.cast::<Vec<CString>>() };
    if !name.is_null() {
        // SAFETY: the loader's name of an object.
        names.push(unsafe { CStr::from_ptr(name) }.to_owned());
    }
    0
}

/// Where an object that is loaded has the function.
fn in_object(name: &CStr) -> Option<usize> {
    // The program itself has an empty name, by which it is not found; what it calls is looked at apart.
    if name.is_empty() {
        return None;
    }
    // SAFETY: a C string; nothing is loaded that was not.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return None;
    }
    // SAFETY: a live handle and a C string.
    let address = unsafe { libc::dlsym(handle, FUNCTION.as_ptr()) };
    // SAFETY: the handle of above, of an object that others keep loaded.
    unsafe { libc::dlclose(handle) };
    (!address.is_null()).then_some(address as usize)
}

/// The files of the process's memory that are called as ggml's base library.
fn mapped() -> Result<BTreeSet<String>> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    // The sixth column is the path.
    let paths = maps.lines().filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
    let is = |path: &&str| Path::new(path).file_name().is_some_and(|n| n.to_string_lossy().starts_with("libggml-base"));
    Ok(paths.filter(is).map(str::to_owned).collect())
}
