#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

#include "apps/command.h"
#include "apps/model_options.h"
#include "apps/terminal.h"
#include "base/bandwidth.h"
#include "base/thread_team.h"
#include "base/topology.h"
#include "engine/exchange_latency.h"
#include "engine/integer_peak.h"
#include "engine/planning.h"
#include "text/json_text.h"
#include "text/unicode.h"

namespace lockstep {
namespace {

constexpr double kGiga = 1e9;
// Of the speeds that are printed.
constexpr int64_t kPromptTokens = 512;
constexpr int64_t kDepths[] = {0, 8192};

// What ranks run on.
struct Machines {
  int64_t count = 1;
  double bytes_per_s = 0, ops_per_s = 0;  // of one machine
  double link_bytes_per_s = 0, link_seconds = 0;
  double barrier_seconds = 0;  // of the threads of one rank

  // Ranks of one machine share it; those of several meet over the link.
  RankSpeed OfRank(int32_t ranks) const {
    const double share = std::min(1.0, static_cast<double>(count) / ranks);
    return {bytes_per_s * share, ops_per_s * share, link_bytes_per_s, link_seconds,
            barrier_seconds};
  }
};

double GivenOr(const OptionValues& options, Opt option, double unit,
               FunctionRef<double()> otherwise) {
  return options.Given(option) ? options.Get<double>(option) * unit : otherwise();
}

Machines ReadMachines(const OptionValues& options, const LoadOptions& load) {
  Machines machines;
  machines.count = options.Get<int64_t>(Opt::kMachines);
  const int threads = load.threads > 0 ? load.threads : Topology::Detect().DefaultThreads();
  machines.bytes_per_s = GivenOr(options, Opt::kBandwidth, kGiga, [&] {
    return OnPinnedTeam(threads, [](ThreadTeam& team) { return MeasureReadBandwidth(team); });
  });
  machines.ops_per_s = GivenOr(options, Opt::kPeak, kGiga, [&] {
    return OnPinnedTeam(threads,
                        [](ThreadTeam& team) { return MeasureIntegerPeak(team, BestIsa()); });
  });
  // Of one machine, ranks read what the others wrote from memory.
  const bool one = machines.count == 1;
  machines.link_bytes_per_s = GivenOr(options, Opt::kLinkBandwidth, kGiga,
                                      [&] { return one ? machines.bytes_per_s : 1.25 * kGiga; });
  machines.link_seconds = GivenOr(options, Opt::kLinkLatency, 1e-6,
                                  [&] { return one ? MeasureExchangeLatency() : 30e-6; });
  machines.barrier_seconds = GivenOr(options, Opt::kBarrierLatency, 1e-6, [&] {
    const int of_rank = std::max(1, static_cast<int>(threads * machines.count / load.ranks));
    return OnPinnedTeam(of_rank, [](ThreadTeam& team) { return MeasureBarrier(team); });
  });
  return machines;
}

struct Prediction {
  std::string what;
  int64_t tokens;  // that the cost is of
  Cost cost;

  double tokens_per_s() const { return static_cast<double>(tokens) / cost.seconds(); }
};

std::vector<Prediction> Predict(const PlannedRun& run, const RankSpeed& speed, int64_t context) {
  const std::vector<RankLoad> loads = run.loads();
  std::vector<Prediction> predictions;
  for (int64_t depth : kDepths) {
    if (depth >= context) continue;
    predictions.push_back({fmt::format("decode at depth {}", depth), 1,
                           DecodeCost(run.sharded, loads, speed, depth)});
  }
  const int64_t prompt = std::min(kPromptTokens, context);
  predictions.push_back({fmt::format("prompt of {}", prompt), prompt,
                         PrefillCost(run.sharded, loads, speed, prompt)});
  return predictions;
}

std::string Bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.2f} MB", bytes / 1e6);
  return fmt::format("{:.1f} KB", bytes / 1e3);
}

double KvOf1000(const RankHoldings& rank) {
  return static_cast<double>(rank.page) * 1000 / kPageTokens;
}

std::string RankTable(const PlannedRun& run) {
  double all = 0;
  for (const RankHoldings& rank : run.ranks) all += rank.load.token_bytes;
  std::string text =
      fmt::format("{:>4}  {:>5}  {:>10}  {:>12}  {:>10}  {:>10}  {:>10}  {:>5}\n", "rank", "stage",
                  "weights", "read a token", "K/V of 1k", "states", "buffers", "work");
  for (size_t i = 0; i < run.ranks.size(); ++i) {
    const RankHoldings& rank = run.ranks[i];
    text += fmt::format(
        "{:>4}  {:>5}  {:>10}  {:>12}  {:>10}  {:>10}  {:>10}  {:>3.0f} %\n", i, rank.stage,
        Bytes(static_cast<double>(rank.weights)), Bytes(rank.load.token_bytes),
        Bytes(KvOf1000(rank)), Bytes(static_cast<double>(rank.states)),
        Bytes(static_cast<double>(rank.buffers)), all == 0 ? 0 : 100 * rank.load.token_bytes / all);
  }
  return text;
}

std::string TrafficLine(const PlannedRun& run) {
  const Traffic traffic = TokenTraffic(run.sharded);
  return fmt::format(
      "collectives: {} a layer; of a token {} reductions, {} gathers, {} sends, in which the rank "
      "with the most receives {} ({} for each row of a prompt)\n",
      run.sharded.collectives_per_layer(), traffic.reduces, traffic.gathers, traffic.sends,
      Bytes(static_cast<double>(traffic.bytes)), Bytes(static_cast<double>(traffic.row_bytes)));
}

std::string PredictionLine(const Prediction& prediction) {
  const Cost& cost = prediction.cost;
  return fmt::format(
      "{}: at most {:.1f} tokens/s ({:.0f} % memory, {:.0f} % products, {:.0f} % collectives, "
      "{:.0f} % barriers)\n",
      prediction.what, prediction.tokens_per_s(), 100 * cost.memory / cost.seconds(),
      100 * cost.compute / cost.seconds(), 100 * cost.exchange / cost.seconds(),
      100 * cost.barriers / cost.seconds());
}

std::string Text(const PlannedModel& model, const PlannedRun& run, const Machines& machines,
                 const std::vector<Prediction>& predictions) {
  std::string text = fmt::format("{}: {}, mesh {} x {} (tensor x pipeline)\n",
                                 Printable(model.file().name(), 4096), model.graph().name,
                                 run.sharded.plan.mesh.tensor, run.sharded.plan.mesh.pipeline);
  text += RankTable(run) + TrafficLine(run);
  text += fmt::format(
      "{} of {:.1f} GB/s and {:.0f} GOP/s; a collective {:.1f} us and {:.1f} GB/s, a "
      "barrier {:.1f} us\n",
      machines.count == 1 ? "one machine" : fmt::format("{} machines", machines.count),
      machines.bytes_per_s / kGiga, machines.ops_per_s / kGiga, machines.link_seconds * 1e6,
      machines.link_bytes_per_s / kGiga, machines.barrier_seconds * 1e6);
  for (const Prediction& prediction : predictions) text += PredictionLine(prediction);
  return text;
}

boost::json::object Object(const RankHoldings& rank) {
  return {{"stage", rank.stage},
          {"weight_bytes", rank.weights},
          {"token_bytes", rank.load.token_bytes},
          {"kv_bytes_1k", KvOf1000(rank)},
          {"state_bytes", rank.states},
          {"buffer_bytes", rank.buffers},
          {"barriers", rank.load.barriers},
          {"token_ops", rank.load.token_ops},
          {"output_ops", rank.load.output_ops}};
}

boost::json::object Object(const Prediction& prediction) {
  return {{"what", prediction.what},
          {"tokens_per_s", prediction.tokens_per_s()},
          {"seconds", prediction.cost.seconds()},
          {"memory_seconds", prediction.cost.memory},
          {"compute_seconds", prediction.cost.compute},
          {"collective_seconds", prediction.cost.exchange},
          {"barrier_seconds", prediction.cost.barriers}};
}

boost::json::object Object(const PlannedModel& model, const PlannedRun& run,
                           const Machines& machines, const std::vector<Prediction>& predictions) {
  const Mesh& mesh = run.sharded.plan.mesh;
  const Traffic traffic = TokenTraffic(run.sharded);
  boost::json::array ranks, speeds;
  for (const RankHoldings& rank : run.ranks) ranks.push_back(Object(rank));
  for (const Prediction& prediction : predictions) speeds.push_back(Object(prediction));
  return {{"file", ReplaceInvalidUtf8(model.file().name())},
          {"architecture", model.graph().name},
          {"tensor_ranks", mesh.tensor},
          {"pipeline_ranks", mesh.pipeline},
          {"ranks", std::move(ranks)},
          {"collectives_per_layer", run.sharded.collectives_per_layer()},
          {"reductions", traffic.reduces},
          {"gathers", traffic.gathers},
          {"sends", traffic.sends},
          {"collective_bytes_per_token", traffic.bytes},
          {"collective_bytes_per_prompt_row", traffic.row_bytes},
          {"machines", machines.count},
          {"bytes_per_s", machines.bytes_per_s},
          {"ops_per_s", machines.ops_per_s},
          {"link_bytes_per_s", machines.link_bytes_per_s},
          {"link_seconds", machines.link_seconds},
          {"barrier_seconds", machines.barrier_seconds},
          {"speeds", std::move(speeds)}};
}

}  // namespace

int RunPlan(const OptionValues& options, Positional) {
  const LoadOptions load = ReadLoadOptions(options);
  const PlannedModel model(load);
  const PlannedRun run =
      model.Cut(MakePlan(load.split, load.ranks, load.proportions, load.experts));
  const Machines machines = ReadMachines(options, load);
  const std::vector<Prediction> predictions =
      Predict(run, machines.OfRank(load.ranks), model.context());
  Print(options.Get<bool>(Opt::kJson) ? JsonText(Object(model, run, machines, predictions)) + "\n"
                                      : Text(model, run, machines, predictions));
  return 0;
}

}  // namespace lockstep
