// Run a function of any artifact on the numbers 0, 1, ..., 6, 0, 1, ... and print the results.
//
//     rustc -O ramp.rs -C link-args="$(python -m byoc_rt --libs)"
//     ./ramp model.byoc main batch=2 sequence=7
//
// An argument NAME=SIZE sets the size of a symbol. Elements are float32, float64, int32, int64, uint8 or bool.

use std::ffi::{c_char, c_void, CStr, CString};
use std::{env, fmt, process, ptr, slice};

// ---- Declarations of byoc_rt.h ----

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct DLDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DLDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
struct DLTensor {
    data: *mut c_void,
    device: DLDevice,
    ndim: i32,
    dtype: DLDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DLManagedTensorVersioned {
    major: u32,
    minor: u32,
    manager_ctx: *mut c_void,
    deleter: unsafe extern "C" fn(*mut DLManagedTensorVersioned),
    flags: u64,
    dl_tensor: DLTensor,
}

#[repr(C)]
struct TensorInfo {
    name: *const c_char,
    dtype: DLDataType,
    ndim: i32,
    shape: *const i64,
    dims: *const *const c_char,
}

#[repr(C)]
struct RawProgram {
    _private: [u8; 0],
}

#[repr(C)]
struct RawFunction {
    _private: [u8; 0],
}

#[link(name = "byoc_rt")]
extern "C" {
    fn byoc_rt_last_error() -> *const c_char;
    fn byoc_rt_load(path: *const c_char, options: *const c_void, program: *mut *mut RawProgram) -> i32;
    fn byoc_rt_unload(program: *mut RawProgram);
    fn byoc_rt_find_function(program: *const RawProgram, name: *const c_char) -> *const RawFunction;
    fn byoc_rt_num_inputs(function: *const RawFunction) -> i32;
    fn byoc_rt_num_outputs(function: *const RawFunction) -> i32;
    fn byoc_rt_input(function: *const RawFunction, index: i32) -> *const TensorInfo;
    fn byoc_rt_output(function: *const RawFunction, index: i32) -> *const TensorInfo;
    fn byoc_rt_run(
        function: *const RawFunction,
        inputs: *const *const DLTensor,
        num_inputs: i32,
        results: *mut *mut DLManagedTensorVersioned,
        num_results: i32,
    ) -> i32;
}

// ---- Owners: memory is released when the owner goes out of scope ----

type Outcome<T> = Result<T, String>;

fn last_error() -> String {
    unsafe { CStr::from_ptr(byoc_rt_last_error()) }.to_string_lossy().into_owned()
}

fn text(pointer: *const c_char) -> String {
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

struct Program(*mut RawProgram);

impl Program {
    fn load(path: &str) -> Outcome<Program> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let mut program = ptr::null_mut();
        match unsafe { byoc_rt_load(path.as_ptr(), ptr::null(), &mut program) } {
            0 => Ok(Program(program)),
            _ => Err(last_error()),
        }
    }

    fn function(&self, name: &str) -> Outcome<Function<'_>> {
        let name = CString::new(name).map_err(|error| error.to_string())?;
        match unsafe { byoc_rt_find_function(self.0, name.as_ptr()).as_ref() } {
            Some(raw) => Ok(Function(raw)),
            None => Err(last_error()),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        unsafe { byoc_rt_unload(self.0) }
    }
}

/// A function cannot outlive its program, nor a result.
struct Function<'a>(&'a RawFunction);

impl<'a> Function<'a> {
    fn inputs(&self) -> impl Iterator<Item = &'a TensorInfo> {
        let raw = self.0;
        (0..unsafe { byoc_rt_num_inputs(raw) }).map(move |index| unsafe { &*byoc_rt_input(raw, index) })
    }

    fn outputs(&self) -> impl Iterator<Item = &'a TensorInfo> {
        let raw = self.0;
        (0..unsafe { byoc_rt_num_outputs(raw) }).map(move |index| unsafe { &*byoc_rt_output(raw, index) })
    }

    fn run(&self, inputs: &mut [Input]) -> Outcome<Vec<Tensor<'a>>> {
        let tensors: Vec<DLTensor> = inputs.iter_mut().map(Input::tensor).collect();
        let pointers: Vec<*const DLTensor> = tensors.iter().map(|tensor| tensor as *const DLTensor).collect();
        let mut results = vec![ptr::null_mut(); self.outputs().count()];
        let counts = (pointers.len() as i32, results.len() as i32);
        match unsafe { byoc_rt_run(self.0, pointers.as_ptr(), counts.0, results.as_mut_ptr(), counts.1) } {
            0 => Ok(results.into_iter().map(|raw| Tensor(unsafe { &mut *raw })).collect()),
            _ => Err(last_error()),
        }
    }
}

struct Tensor<'a>(&'a mut DLManagedTensorVersioned);

impl Tensor<'_> {
    fn shape(&self) -> &[i64] {
        match self.0.dl_tensor.ndim {
            0 => &[],
            ndim => unsafe { slice::from_raw_parts(self.0.dl_tensor.shape, ndim as usize) },
        }
    }

    fn elements<T>(&self) -> &[T] {
        match self.shape().iter().product::<i64>() as usize {
            0 => &[],
            count => unsafe { slice::from_raw_parts(self.0.dl_tensor.data as *const T, count) },
        }
    }
}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        unsafe { (self.0.deleter)(self.0) }
    }
}

// ---- The program ----

const BOOL: DLDataType = DLDataType { code: 6, bits: 8, lanes: 1 };
const FLOAT32: DLDataType = DLDataType { code: 2, bits: 32, lanes: 1 };
const FLOAT64: DLDataType = DLDataType { code: 2, bits: 64, lanes: 1 };
const INT32: DLDataType = DLDataType { code: 0, bits: 32, lanes: 1 };
const INT64: DLDataType = DLDataType { code: 0, bits: 64, lanes: 1 };
const UINT8: DLDataType = DLDataType { code: 1, bits: 8, lanes: 1 };

struct Input {
    dtype: DLDataType,
    shape: Vec<i64>,
    bytes: Vec<u8>,
}

impl Input {
    /// Return an input of the numbers 0 to 6, over and over; of bools, 0 and 1.
    fn ramp(info: &TensorInfo, sizes: &[(String, i64)]) -> Outcome<Input> {
        let shape = (0..info.ndim as usize).map(|axis| size_of(info, axis, sizes)).collect::<Outcome<Vec<i64>>>()?;
        let mut bytes = Vec::new();
        for index in 0..shape.iter().product::<i64>() {
            match (index % 7, info.dtype) {
                (number, FLOAT32) => bytes.extend((number as f32).to_ne_bytes()),
                (number, FLOAT64) => bytes.extend((number as f64).to_ne_bytes()),
                (number, INT32) => bytes.extend((number as i32).to_ne_bytes()),
                (number, INT64) => bytes.extend(number.to_ne_bytes()),
                (number, UINT8) => bytes.push(number as u8),
                (number, BOOL) => bytes.push((number % 2) as u8),
                _ => return Err(format!("input `{}`: this program has no such elements", text(info.name))),
            }
        }
        Ok(Input { dtype: info.dtype, shape, bytes })
    }

    fn tensor(&mut self) -> DLTensor {
        DLTensor {
            data: self.bytes.as_mut_ptr() as *mut c_void,
            device: DLDevice { device_type: 1, device_id: 0 },
            ndim: self.shape.len() as i32,
            dtype: self.dtype,
            shape: self.shape.as_mut_ptr(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        }
    }
}

/// Return the size of an axis: a number of the model, or the size of a symbol.
fn size_of(info: &TensorInfo, axis: usize, sizes: &[(String, i64)]) -> Outcome<i64> {
    let (size, dim) = unsafe { (*info.shape.add(axis), text(*info.dims.add(axis))) };
    let set = sizes.iter().find(|(name, _)| *name == dim).map(|(_, size)| *size);
    match (size, set) {
        (-1, Some(size)) => Ok(size),
        (-1, None) => Err(format!("input `{}`: the size `{dim}` is not set: {dim}=SIZE", text(info.name))),
        _ => Ok(size),
    }
}

fn print_elements<T: fmt::Display>(elements: &[T]) {
    println!("{}", elements.iter().map(T::to_string).collect::<Vec<_>>().join(" "));
}

fn print_result(info: &TensorInfo, result: &Tensor) -> Outcome<()> {
    let sizes: Vec<String> = result.shape().iter().map(i64::to_string).collect();
    println!("{}", [vec![text(info.name)], sizes].concat().join(" "));
    match info.dtype {
        FLOAT32 => print_elements(result.elements::<f32>()),
        FLOAT64 => print_elements(result.elements::<f64>()),
        INT32 => print_elements(result.elements::<i32>()),
        INT64 => print_elements(result.elements::<i64>()),
        UINT8 | BOOL => print_elements(result.elements::<u8>()),
        _ => return Err(format!("output `{}`: this program has no such elements", text(info.name))),
    }
    Ok(())
}

fn run(arguments: &[String]) -> Outcome<()> {
    let [_, path, name, settings @ ..] = arguments else {
        return Err("usage: ramp MODEL FUNCTION [NAME=SIZE...]".to_string());
    };
    let mut sizes = Vec::new();
    for setting in settings {
        let (symbol, size) = setting.split_once('=').ok_or(format!("`{setting}`: NAME=SIZE is expected"))?;
        sizes.push((symbol.to_string(), size.parse().map_err(|_| format!("`{setting}`: the size is no number"))?));
    }
    let program = Program::load(path)?;
    let function = program.function(name)?;
    let mut inputs = function.inputs().map(|info| Input::ramp(info, &sizes)).collect::<Outcome<Vec<Input>>>()?;
    let results = function.run(&mut inputs)?;
    for (info, result) in function.outputs().zip(&results) {
        print_result(info, result)?;
    }
    Ok(())
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    if let Err(error) = run(&arguments) {
        eprintln!("ramp: {error}");
        process::exit(1);
    }
}
