#include "sim/replay.h"

#include <deque>
#include <type_traits>
#include <unordered_map>
#include <variant>

#include "core/digest.h"
#include "core/endpoint.h"
#include "core/trace.h"

namespace holdfast::sim {
namespace {

class Replayer {
 public:
  explicit Replayer(std::span<const std::uint8_t> bytes)
      : reader_(bytes), endpoint_(reader_.settings(), reader_.constructed_at()) {}

  ReplayResult run() {
    while (std::optional<trace::Record> record = reader_.next()) {
      std::visit([this](auto& one) { perform(one); }, *record);
      take_reports();
      ++result_.num_records;
    }
    result_.digest = digest_.value();
    result_.drops = endpoint_.drops();
    return std::move(result_);
  }

 private:
  void perform(trace::Datagram& record) {
    ++result_.num_datagrams_in;
    endpoint_.receive(record.now, record.bytes, record.age);
  }

  void perform(trace::Called& record) {
    Call call = record.call;
    // The number is known only after the call, and the memory must stay where it is until the report.
    inputs_.push_back(std::move(record.input));
    call.data = inputs_.back().data();
    input_of_[endpoint_.call(record.now, call)] = inputs_.size() - 1;
  }

  void perform(trace::NoteSent& record) {
    endpoint_.send_note(record.now, record.peer, record.channel, std::move(record.bytes), record.deadline);
  }
  void perform(trace::NoteReleased& record) { endpoint_.release_note(record.sender, record.bytes); }
  void perform(trace::Skipped& record) { endpoint_.skip_to(record.now, record.operation); }
  void perform(trace::Published& record) { endpoint_.publish(record.parameters); }
  void perform(trace::Goodbye&) { endpoint_.say_goodbye(); }
  void perform(trace::Timer& record) { endpoint_.on_timer(record.now); }

  void perform(trace::Filled& record) {
    const bool filled = endpoint_.fill(record.now, batch_, record.card_queue_bytes);
    const std::uint64_t digest = filled ? trace::digest_of(batch_) : 0;
    if (filled) {
      ++result_.num_batches_out;
      digest_.add(digest);
    }
    if (filled != record.filled || digest != record.digest) diverge("sent something else");
  }

  void perform(trace::Reported& record) {
    ++result_.num_reports_recorded;
    const std::size_t index = reports_compared_++;
    if (index >= report_digests_.size() || report_digests_[index] != record.digest) diverge("reported something else");
  }

  void take_reports() {
    for (OperationReport& report : endpoint_.take_reports()) {
      report_digests_.push_back(trace::digest_of(report, inputs_[input_of_.at(report.operation)]));
      result_.reports.push_back(std::move(report));
    }
    endpoint_.take_notes();
    endpoint_.take_sent_notes();
    endpoint_.take_peer_changes();
  }

  void diverge(const char* what) {
    if (result_.divergence.empty()) result_.divergence = "record " + std::to_string(result_.num_records) + ": " + what;
  }

  TraceReader reader_;
  Endpoint endpoint_;
  TransmitBatch batch_;
  std::deque<std::vector<std::uint8_t>> inputs_;
  std::unordered_map<std::uint32_t, std::size_t> input_of_;
  std::vector<std::uint64_t> report_digests_;
  std::size_t reports_compared_ = 0;
  Digest digest_;
  ReplayResult result_;
};

}  // namespace

ReplayResult replay(std::span<const std::uint8_t> trace) { return Replayer(trace).run(); }

}  // namespace holdfast::sim
