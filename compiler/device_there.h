// Whether this machine can run layers on a device.
#pragma once

namespace attnc {

bool device_is_there();  // a driver, and a device that it knows

}  // namespace attnc
