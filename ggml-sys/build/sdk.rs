//! The SDKs of optional backends.

/// Groups of targets with the same system libraries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    Apple,
    Windows,
    Android,
    /// Linux, and the BSDs.
    Unix,
}

/// An SDK that must be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sdk {
    OpenBlas,
    Vulkan,
    Cuda,
    Rocm,
    OpenCl,
}

impl Sdk {
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenBlas => "OpenBLAS (feature `blas`)",
            Self::Vulkan => "Vulkan's headers, SPIR-V's headers and glslc (feature `vulkan`)",
            Self::Cuda => "CUDA's toolkit (feature `cuda`)",
            Self::Rocm => "ROCm with hipBLAS and rocBLAS (feature `hip`)",
            Self::OpenCl => "OpenCL's headers and loader, and Python (feature `opencl`)",
        }
    }

    /// Its packages for apt, dnf, macOS and winget.
    pub fn packages(self) -> [&'static str; 4] {
        match self {
            Self::OpenBlas => ["libopenblas-dev", "openblas-devel", "", ""],
            Self::Vulkan => [
                "libvulkan-dev spirv-headers glslc",
                "vulkan-loader-devel spirv-headers-devel glslc",
                "vulkan-headers vulkan-loader spirv-headers shaderc",
                "KhronosGroup.VulkanSDK",
            ],
            Self::Cuda => ["nvidia-cuda-toolkit", "", "", "Nvidia.CUDA"],
            Self::Rocm => ["hipcc libhipblas-dev librocblas-dev", "rocm-hip-devel hipblas-devel rocblas-devel", "", ""],
            Self::OpenCl => [
                "opencl-headers ocl-icd-opencl-dev python3",
                "opencl-headers ocl-icd-devel python3",
                "",
                "Python.Python.3.13",
            ],
        }
    }

    /// The variable with its folder.
    pub fn variable(self, platform: Platform) -> &'static str {
        match self {
            Self::OpenBlas => "OPENBLAS_DIR",
            Self::Vulkan => "VULKAN_SDK",
            Self::Cuda => "CUDA_PATH",
            Self::Rocm if platform == Platform::Windows => "HIP_PATH",
            Self::Rocm => "ROCM_PATH",
            Self::OpenCl => "OCL_ROOT",
        }
    }

    /// Where to get it besides packages, and how to set its folder.
    pub fn hint(self) -> &'static str {
        match self {
            Self::OpenBlas => {
                "OpenBLAS in an unusual place, on Windows (vcpkg install openblas) or for Android: set OPENBLAS_DIR to the \
                 folder with its include and lib."
            }
            Self::Vulkan => "Vulkan's SDK from https://vulkan.lunarg.com: set VULKAN_SDK to its folder.",
            Self::Cuda => "CUDA from https://developer.nvidia.com/cuda-downloads: set CUDA_PATH to its folder.",
            Self::Rocm => {
                "ROCm 6.1 or newer from https://rocm.docs.amd.com: set ROCM_PATH to its folder, on Windows HIP_PATH."
            }
            Self::OpenCl => "OpenCL's SDK from https://github.com/KhronosGroup/OpenCL-SDK: set OCL_ROOT to its folder.",
        }
    }
}
