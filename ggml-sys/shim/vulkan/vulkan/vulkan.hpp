// In front of Vulkan's own header: ggml names types of VK_EXT_layer_settings, which headers older than 1.3.272 lack, and
// Debian 12 and Ubuntu 22.04 have older ones. ggml turns the extension on only where the validation layer offers it. It also
// compares a device with a null pointer, for which older headers offer two conversions.
#ifndef GGML_SYS_VULKAN_HPP
#define GGML_SYS_VULKAN_HPP

#include_next <vulkan/vulkan.hpp>

#ifndef VK_EXT_layer_settings

namespace VULKAN_HPP_NAMESPACE {

enum class LayerSettingTypeEXT { eBool32 = 0 };

// `VkLayerSettingEXT`
struct LayerSettingEXT {
    const char * pLayerName;
    const char * pSettingName;
    LayerSettingTypeEXT type;
    uint32_t valueCount;
    const void * pValues;
};

// `VkLayerSettingsCreateInfoEXT`. Loaders that do not know it pass over it.
struct LayerSettingsCreateInfoEXT {
    StructureType sType = static_cast<StructureType>(1000496000);
    const void * pNext = nullptr;
    uint32_t settingCount;
    const LayerSettingEXT * pSettings;

    template <typename Settings>
    explicit LayerSettingsCreateInfoEXT(const Settings & settings)
        : settingCount(static_cast<uint32_t>(settings.size())), pSettings(settings.data()) {}
};

inline bool operator==(const Device & device, std::nullptr_t) {
    return !device;
}

} // namespace VULKAN_HPP_NAMESPACE

#endif

#endif
